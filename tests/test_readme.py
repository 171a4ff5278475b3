"""README.md says what is true."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from app.command_line import parser
from app.commands import ALIASES
from engine.models import ARCHITECTURES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_table_of_families_names_every_architecture_and_no_other() -> None:
    table = README.partition("| family |")[2].partition("\n\n")[0].splitlines()[2:]
    named = [name for row in table for name in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert set(named) == set(ARCHITECTURES)


def test_every_option_and_command_that_it_names_is_there() -> None:
    commands = next(action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    options = {option for command in commands.values() for option in command._option_string_actions}
    text = README.replace("--threads 2", "")  # a peer's
    for script in re.findall(r"-m bench\.(\w+)", README):
        options |= set(re.findall(r'"(--[a-z][a-z-]+)"', (ROOT / "bench" / f"{script}.py").read_text("utf-8")))
    assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", text)) <= options | {"--help"}
    table = README.partition("| command |")[2].partition("\n\n")[0]
    others = {alias for aliases in ALIASES.values() for alias in aliases}
    assert set(re.findall(r"^\| `([a-z]+)", table, re.MULTILINE)) == set(commands) - others
