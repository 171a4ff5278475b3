"""Each thing that can stop the set-up is one sentence with its remedy, and exit code 2."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from installer.environment import Environment
from installer.pip import failure
from installer.report import NoRoom, explain
from tests import smalldisk
from tests.installer.checkout import call, write


def last_line(text: str) -> str:
    assert "Traceback" not in text
    return text.splitlines()[-1]


def test_no_network_is_one_sentence_and_the_next_call_repairs_what_is_missing(environment: Environment) -> None:
    for _ in range(2):
        done = call(environment.root, "run", "x")
        assert (done.returncode, done.stdout) == (2, "")
        assert last_line(done.stderr).startswith("The package index could not be reached: check the network")
        assert "Step 2 of 5" in done.stderr
        assert environment.sound()
        assert not environment.temporary.exists()


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_which_package_to_install(checkout: Path, tmp_path: Path, module: str) -> None:
    write(tmp_path / "hide" / "sitecustomize.py", f"import sys; sys.modules[{module!r}] = None\n")
    done = call(checkout, "run", PYTHONPATH=str(tmp_path / "hide"))
    version = "{}.{}".format(*sys.version_info)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"sudo apt-get install python{version}-venv" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("module", ["ssl", "zlib", "ctypes"])
def test_a_python_that_was_cut_down_is_told_what_it_lacks(checkout: Path, tmp_path: Path, module: str) -> None:
    write(tmp_path / "hide" / "sitecustomize.py", f"import sys; sys.modules[{module!r}] = None\n")
    done = call(checkout, "run", PYTHONPATH=str(tmp_path / "hide"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"was built without {module}" in done.stderr


@smalldisk.needed
def test_a_disk_without_room_is_told_what_is_needed_and_what_is_free(checkout: Path, tmp_path: Path) -> None:
    done = on_small_disk(checkout, tmp_path, "40m", "true")
    assert done.returncode == 2
    assert last_line(done.stderr).startswith("The environment needs 2.3 GB on the disk that holds")
    assert "and 0.0 GB are free: free some space" in done.stderr


@smalldisk.needed
def test_a_full_disk_is_a_sentence(checkout: Path, tmp_path: Path) -> None:
    done = on_small_disk(checkout, tmp_path, "1m", "mkdir .venv; dd if=/dev/zero of=filler 2>/dev/null || true")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
    assert "free some space" in last_line(done.stderr)


@smalldisk.needed
def test_a_checkout_that_cannot_be_written_is_a_sentence(checkout: Path, tmp_path: Path) -> None:
    done = on_small_disk(checkout, tmp_path, "40m", 'mount -o remount,ro "$place"')
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "The system does not allow writing here" in done.stderr
    assert "move the checkout" in done.stderr


def on_small_disk(checkout: Path, tmp_path: Path, size: str, then: str):
    """The installer on a copy of the checkout that lies on a disk of its own."""
    place = tmp_path / "small disk"
    place.mkdir()
    prepare = f"cp -R '{checkout}'/. .; {then}"
    return smalldisk.run([sys.executable, "-m", "installer", "run", "x"], place, size, prepare)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "no room left"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not the one pinned"),
        ("WARNING: Retrying (Retry(total=2)) after connection broken by 'ReadTimeoutError(...)': /x/", "be reached"),
        ("WARNING: Retrying after connection broken by 'NameResolutionError(\"Failed to resolve 'x'\")'", "be reached"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build of torch for Python 3."),
        ("ERROR: Failed to build editable for millstream.", "pip failed: Failed to build editable for millstream."),
        (
            "  native_build.BuildError: millstream-avx2.so did not compile:\n  linear.c:3:1: error: expected ')'\n  1",
            "could not be compiled: millstream-avx2.so did not compile: linear.c:3:1: error: expected ')'. Put",
        ),
        ("  native_build.BuildError: The package ziglang is missing.", "compiled: The package ziglang is missing. Put"),
        ("  OSError: Readme file does not exist\nerror: metadata-generation-failed", "Readme file does not exist. Put"),
        ("", "it gave no reason"),
    ],
)
def test_what_pip_says_becomes_a_sentence(environment: Environment, line: str, sentence: str) -> None:
    problem = failure(["Collecting x\n", f"{line}\n"] if line else [], environment)
    assert sentence in str(problem)
    assert isinstance(problem, NoRoom) == ("Errno 28" in line)


def test_an_unreachable_index_is_not_mistaken_for_a_missing_build(environment: Environment) -> None:
    """pip ends with the same line for both."""
    output = ["WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/x/\n"]
    assert "reached" in str(failure([*output, "ERROR: No matching distribution found for x==1\n"], environment))


@pytest.mark.parametrize(
    ("code", "sentence"),
    [(errno.ENOSPC, "no room left"), (errno.EACCES, "does not allow writing"), (errno.EIO, "Input/output error")],
)
def test_what_the_system_refuses_becomes_a_sentence_that_names_the_file(code: int, sentence: str) -> None:
    import os

    problem = str(explain(OSError(code, os.strerror(code), "/some/file")))
    assert sentence in problem
    assert "/some/file" in problem
