"""Streams that are closed, or lead to a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.running import POSIX, output, refusal, shell


@POSIX
@pytest.mark.parametrize(
    "command",
    [
        "M run tiny -p hi --max-tokens 2 >&-",
        "M run tiny -p hi --max-tokens 2 --json >&-",
        "M info tiny >&-",
        "M --help >&-",
        "M chat tiny <&-",
        "M run tiny -p - <&-",
    ],
)
def test_a_closed_stream_that_is_needed_gets_one_sentence(library: Path, command: str) -> None:
    assert " cannot be " in refusal(shell(command, library))


@POSIX
def test_a_closed_stream_that_is_not_needed_changes_nothing(library: Path) -> None:
    command = "M run tiny -p hi --max-tokens 4 --temperature 0"
    assert output(shell(f"{command} 2>&-", library)) == output(shell(f"{command} <&-", library)) != ""


@POSIX
@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_an_error_that_cannot_be_told_still_gives_its_code(library: Path, closed: str) -> None:
    done = shell(f"M run nosuch -p hi {closed}", library)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
@pytest.mark.parametrize(
    "command",
    [
        "M run nosuch -p hi 2>/dev/full",
        "M frobnicate 2>/dev/full",
        "M --help >/dev/full",
        "echo hi | M chat tiny --max-tokens 2 >/dev/full",
    ],
)
def test_a_full_disk_under_either_stream_gives_code_2(library: Path, command: str) -> None:
    assert shell(command, library).returncode == 2
