"""`python3 -m installer run` and `test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from installer.environment import Environment
from installer.libraries import has_display
from installer.report import SetupError, explain
from installer.steps import set_up

USAGE = """\
usage: python3 -m installer run [--] [ARGUMENTS]
       python3 -m installer test [--] [PYTEST ARGUMENTS]

run    Set Millstream up in .venv, fetch the starter model, and open the window. Arguments go to the program:
       `python3 -m installer run -- run starter -p "What is a water mill?"`. Where there is no display, the chat
       opens in the terminal.
test   Set up the same with the tools for testing, then run ruff, mypy and the tests.

The first call takes minutes and about 2 GB of disk; later ones start at once. All that the set-up has to say goes
to standard error. MILLSTREAM_TORCH_INDEX names the package index to take PyTorch from; MILLSTREAM_HOME names the
folder in which models are kept.
"""


def main(argv: list[str]) -> int:
    """Returns the exit code: 2 where the set-up failed, else that of the program or of the first check that failed."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("-h", "--help") or (command in ("run", "test") and rest[:1] in (["-h"], ["--help"])):
        print(USAGE, end="")
        return 0
    if command not in ("run", "test"):
        sys.stderr.write((f"There is no command {command!r}.\n\n" if command else "") + USAGE)
        return 2
    if rest[:1] == ["--"]:
        rest = rest[1:]
    environment = Environment(Path(__file__).resolve().parent.parent)
    try:
        if not (environment.root / "pyproject.toml").exists():
            raise SetupError("The installer works on a checkout of Millstream's source: start it there.")
        return run(environment, rest) if command == "run" else test(environment, rest)
    except SetupError as error:
        problem = error
    except OSError as error:
        problem = explain(error)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped. The next call goes on from here.\n")
        return 130
    sys.stderr.write(f"{problem}\n")
    return 2


def run(environment: Environment, args: list[str]) -> int:
    """Set up, then become the program."""
    window = not args and has_display()
    set_up(environment, "run", qt=window)
    code = fetch_starter(environment)
    # With arguments the program may be about another model, and says so itself where it is not.
    if code != 0 and (not args or "starter" in args):
        return code
    if not args and not window:
        sys.stderr.write("There is no display here, so the chat opens in this terminal.\n")
        args = ["chat", "starter"]
    return become([str(environment.python), "-m", "app", *args])


def test(environment: Environment, args: list[str]) -> int:
    """Set up with the tools for testing, then run every check, the tests last."""
    if not has_display():
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    set_up(environment, "test", qt=True)
    if code := fetch_starter(environment):
        return code
    checks = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["pytest", *args])
    codes = [
        subprocess.run(
            [str(environment.python), "-m", *check], cwd=environment.root, stdin=subprocess.DEVNULL
        ).returncode
        for check in checks
    ]
    return next((code for code in codes if code != 0), 0)


def fetch_starter(environment: Environment) -> int:
    """Have the starter model in the library; quick where it is there. Returns the exit code of what fetched it."""
    command = [str(environment.python), "-m", "registry.starter"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode


def become(command: list[str]) -> int:
    """Run the program in the place of this one, so that signals and the exit code are its own."""
    if os.name == "nt":
        with subprocess.Popen(command) as program:
            while True:
                try:
                    return program.wait()
                except KeyboardInterrupt:  # The program got it too, and decides.
                    continue
    sys.stderr.flush()
    os.execv(command[0], command)
