"""The two commands, called as a person calls them, on an environment that is already there."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from installer.environment import Environment
from tests.installer.checkout import ROOT, call, variables, write


@pytest.mark.parametrize("args", [["run", "run", "starter", "-p", "a b"], ["run", "--", "run", "starter", "-p", "a b"]])
def test_arguments_go_to_the_program_whose_output_and_code_are_all_there_is(
    ready: Environment, args: list[str]
) -> None:
    done = call(ready.root, *args)
    assert json.loads(done.stdout)["args"] == ["run", "starter", "-p", "a b"]
    assert (done.returncode, done.stderr) == (7, "")


def test_only_the_first_double_dash_is_the_installers(ready: Environment) -> None:
    done = call(ready.root, "run", "--", "chat", "--", "--help")
    assert json.loads(done.stdout)["args"] == ["chat", "--", "--help"]


@pytest.mark.skipif(os.name == "nt", reason="there the program is a child")
def test_the_program_takes_the_installers_place_so_that_signals_reach_it(ready: Environment) -> None:
    command = [sys.executable, "-m", "installer", "run", "x"]
    with subprocess.Popen(command, cwd=ready.root, env=variables(), stdout=subprocess.PIPE) as process:
        output, _ = process.communicate(timeout=60)
    assert json.loads(output)["pid"] == process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have a display")
def test_without_a_display_the_chat_opens_in_the_terminal_and_says_so(ready: Environment) -> None:
    done = call(ready.root, "run")
    assert json.loads(done.stdout)["args"] == ["chat", "starter"]
    assert done.stderr == "There is no display here, so the chat opens in this terminal.\n"


def test_where_a_window_can_open_it_does(ready: Environment) -> None:
    done = call(ready.root, "run", QT_QPA_PLATFORM="offscreen")
    assert (json.loads(done.stdout)["args"], done.stderr) == ([], "")


def test_a_starter_that_cannot_be_had_stops_the_chat_but_not_a_command_about_another_model(ready: Environment) -> None:
    write(ready.root / "offline", "")
    stopped = call(ready.root, "run", "run", "starter")
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert "no network for the starter" in stopped.stderr
    assert json.loads(call(ready.root, "run", "info", "other.gguf").stdout)["args"] == ["info", "other.gguf"]


def test_every_check_runs_and_the_first_that_fails_gives_the_code(ready: Environment) -> None:
    """The tools are small programs that say their name and end as told."""
    packages = next(ready.folder.glob("lib/python*/site-packages"))
    codes = {"ruff": 0, "mypy": 3, "pytest": 4}
    for tool, code in codes.items():
        said = f"'{tool}', *sys.argv[1:], os.environ['QT_QPA_PLATFORM']"
        text = f"import os, sys\nprint({said}, flush=True)\nsys.exit({code})\n"
        write(packages / f"{tool}.py", text)
    done = call(ready.root, "test", "--", "-k", "one")
    assert done.returncode == 3
    assert done.stdout.splitlines() == [
        "ruff check offscreen",
        "ruff format --check offscreen",
        "mypy offscreen",
        "pytest -k one offscreen",
    ]


def test_help_is_printed_and_anything_else_is_answered_with_it(checkout: Path) -> None:
    for args in (["--help"], ["-h"], ["run", "--help"], ["test", "-h"]):
        done = call(checkout, *args)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: python3 -m installer run")
    for args, begins in (([], "usage: "), (["install"], "There is no command 'install'.")):
        done = call(checkout, *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(begins) and "usage: python3 -m installer run" in done.stderr
    assert not (checkout / ".venv").exists()


def test_an_installer_away_from_its_checkout_says_so(checkout: Path) -> None:
    (checkout / "pyproject.toml").unlink()
    done = call(checkout, "run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "checkout" in done.stderr


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py"])
def test_what_an_old_python_reads_first_is_in_old_syntax(name: str) -> None:
    text = (ROOT / "installer" / name).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 4))
    assert "__future__" not in text


def test_an_old_python_is_turned_away_with_a_sentence(checkout: Path) -> None:
    pretend = "import sys, runpy; sys.version_info = (3, 10, 4); runpy.run_module('installer', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", pretend], cwd=checkout, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("Millstream needs Python 3.11 or newer, and this is Python 3.10: install")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_during_the_set_up_ends_it_with_a_sentence(environment: Environment) -> None:
    """The set-up waits for another one, which is held here."""
    from installer.report import Report

    command = [sys.executable, "-m", "installer", "run"]
    with (
        environment.locked(Report(1)),
        subprocess.Popen(command, cwd=environment.root, env=variables(), stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr is not None
        while "waiting for it to end" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == "\nStopped. The next call goes on from here.\n"
    assert process.returncode == 130
