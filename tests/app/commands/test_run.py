"""`millstream run`: one prompt, one reply."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.running import ROOT, STORY, WAIT, Program, begin, output, refusal

RUN = ("run", "tiny", "-p", "Hello", "--max-tokens", "6", "--seed", "4", "--temperature", "1.5")


def test_run_gives_one_json_object_or_the_same_text_as_it_comes(program: Program) -> None:
    result = json.loads(output(program(*RUN, "--json")))
    before = ["text", "reasoning", "tool_calls", "finish_reason", "in_reasoning"]
    assert list(result) == [*before, "seed", "usage", "timings"]
    assert result["finish_reason"] == "length"
    assert result["usage"]["completion_tokens"] == 6
    assert result["timings"]["decode_s"] > 0
    assert output(program(*RUN)) == result["text"].removesuffix("\n") + "\n"


def test_run_takes_its_prompt_from_standard_input(millstream: Program) -> None:
    from_stdin = output(millstream(*RUN[:3], "-", *RUN[4:], stdin="Hello"))
    assert from_stdin == output(millstream(*RUN))
    assert "not UTF-8" in refusal(millstream("run", "tiny", "-p", "-", stdin=b"\xff\xfe"))


def test_raw_text_has_no_template(millstream: Program) -> None:
    usage = [json.loads(output(millstream(*RUN, "--json", *more)))["usage"] for more in ((), ("--raw",))]
    assert usage[1]["prompt_tokens"] == 5 < usage[0]["prompt_tokens"]
    assert "--system" in refusal(millstream(*RUN, "--raw", "--system", "Be brief"))


def test_a_system_message_stands_before_the_prompt(millstream: Program) -> None:
    usage = [json.loads(output(millstream(*RUN, "--json", *more)))["usage"] for more in ((), ("--system", "ab"))]
    assert usage[1]["prompt_tokens"] == usage[0]["prompt_tokens"] + len("|system\nab|\n")


def test_a_stop_string_ends_the_text(millstream: Program) -> None:
    text = json.loads(output(millstream(*RUN, "--json")))["text"]
    stopped = json.loads(output(millstream(*RUN, "--json", "--stop", text[2:4])))
    assert (stopped["text"], stopped["finish_reason"]) == (text[: text.index(text[2:4])], "stop")


def test_the_seed_that_was_drawn_gives_the_same_reply_again(millstream: Program) -> None:
    command = ("run", "tiny", "-p", "Hello", "--max-tokens", "12", "--temperature", "1.5", "--json")
    first = json.loads(output(millstream(*command)))
    assert json.loads(output(millstream(*command, "--seed", str(first["seed"]))))["text"] == first["text"]
    assert json.loads(output(millstream(*command)))["seed"] != first["seed"]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
def test_ctrl_c_ends_a_run(starter: Path) -> None:
    with begin("run", str(starter), "-p", "Tell me a long story.", *STORY) as process:
        assert process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGPIPE")
def test_a_reader_that_goes_away_ends_a_run_quietly(starter: Path) -> None:
    with begin("run", str(starter), "-p", "Tell me a long story.", *STORY) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.wait(WAIT) == 141
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_a_full_disk_under_the_output_gets_one_sentence(library: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "app", *RUN],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library)},
            timeout=WAIT,
        )
    assert done.returncode == 2
    assert done.stderr.decode() == "millstream: The output cannot be written: No space left on device.\n"
