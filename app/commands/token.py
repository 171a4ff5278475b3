"""`millstream token`: the access token for the Hub, which no command ever shows."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Sequence

from app import options
from app.console import complain, tell, write
from engine import SettingsError

NAME = "token"
SUMMARY = "keep the access token for the Hub in the system's keyring, or forget it"

LONGEST = 8192
"""Bytes that are read of standard input."""
PLACES = {"keyring": "the system's keyring", "file": "where the Hub's own login left it"}


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        choices=("set", "forget", "show"),
        help="set asks for it, or reads it from standard input; show tells where it is from, and not what it is",
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry import tokens

    said = ""
    if arguments.what == "set":
        tokens.set(_read())
        said = "The token is kept in the system's keyring."
    elif arguments.what == "forget":
        tokens.forget()
        said = "The keyring holds no token."
    found = tokens.find()
    if arguments.json:
        write(json.dumps({"origin": found.origin, "problem": found.problem}, ensure_ascii=False) + "\n")
        return 0
    place = PLACES.get(found.origin, f"the environment variable {found.origin}")
    if found.problem:
        complain(found.problem)
    if arguments.what == "show":
        if found.origin:
            write(f"The token is from {place}.\n")
        else:
            way = "" if found.problem else "; to keep one: millstream token set"
            tell(f"There is no token. Most models need none{way or '.'}")
        return 0
    tell(said)
    if found.origin and not (arguments.what == "set" and found.origin == "keyring"):
        complain(f"But a token is still there, and used: it is from {place}.")
    return 0


def _read() -> str:
    """From a prompt that does not show it, else from a pipe. Raises SettingsError."""
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Access token (it is not shown): ")
        except EOFError:
            return ""
    try:
        return sys.stdin.buffer.readline(LONGEST).decode("ascii", "replace")
    except OSError as error:
        raise SettingsError(f"Standard input cannot be read: {error.strerror}.") from error
