"""`millstream import`: a model that is on this machine already, into the library."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import options
from app.console import Progress, complain, note, table, tell, write
from engine import ModelFileError, SettingsError, human_bytes
from engine.units import NAMED, elided

if TYPE_CHECKING:
    from pathlib import Path

    from registry.stores.found import Found

NAME = "import"
SUMMARY = "take a model that is on this machine into the library, or list those of other programs"

STORES = {"ollama": "ollama", "lmstudio": "lmstudio", "hub-cache": "hub", "llama-cpp": "llamacpp"}
"""What a person calls them, and what `registry.stores` does."""


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        type=options.text,
        metavar="PATH",
        help="a file or a folder; with --from, a name in its list",
    )
    parser.add_argument(
        "--from", dest="store", choices=STORES, help="of another program: without a name, list what it has"
    )
    parser.add_argument("--copy", action="store_true", help="copy it (default: leave it where it is, and use it there)")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library

    if arguments.model is None and arguments.store is None:
        raise SettingsError("Name a file or a folder, or a program with --from (see millstream import --help).")
    if arguments.store is not None and arguments.model is None:
        return _list(arguments)
    library = Library.default()
    line = Progress()
    try:
        from registry.importing import import_model

        made = import_model(
            arguments.model if arguments.store is None else _named(arguments.store, arguments.model),
            library,
            "copy" if arguments.copy else "reference",
            lambda step: line.show(step.what, step.done, step.total),
        )
    finally:
        line.clear()
    if arguments.json:
        told = {"name": made.name, "path": str(made.path), "bytes": made.nbytes, "linked": made.linked}
        write(json.dumps(told, ensure_ascii=False) + "\n")
        return 0
    where = f" Its files stay where they are ({made.path})." if made.linked else ""
    tell(f"{made.name} is in the library.{where} To chat: millstream chat {shlex.quote(made.name)}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from registry.stores.found import checked

    found, sentence = _survey(arguments.store)
    found = tuple(map(checked, found))
    if arguments.json:
        write(json.dumps({"from": arguments.store, "models": list(map(_fields, found))}, ensure_ascii=False) + "\n")
        return 0
    if found:
        rows = [(each.name, human_bytes(each.nbytes), "cannot be used" if each.problem else "") for each in found]
        write(table(rows, right=(1,)))
    else:
        complain("No models were found there.")
    if sentence:
        complain(sentence)
    usable = [each for each in found if not each.problem]
    if usable:
        note(f"\nTo import one: millstream import --from {arguments.store} {shlex.quote(usable[0].name)}")
    return 0


def _survey(store: str) -> tuple[tuple[Found, ...], str]:
    """The models that a program keeps here, and why there may be more."""
    from registry.stores.roots import Roots, survey

    found = survey(Roots.default())
    return tuple(each for each in found.found if each.store == STORES[store]), found.sentence


def _named(store: str, name: str) -> Found:
    """Raises ModelFileError."""
    found, _ = _survey(store)
    meant = [each for each in found if each.name == name] or [
        each for each in found if each.name.rpartition("/")[2] == name
    ]
    if len(meant) == 1:
        return meant[0]
    known = ", ".join(each.name for each in meant or found) or "nothing"
    if meant:
        raise ModelFileError(f"“{name}” means several models there: {known}. Choose one by its whole name.")
    raise ModelFileError(f"There is no model “{elided(name, NAMED)}” there. It has: {known}.")


def _fields(found: Found) -> dict[str, object]:
    paths: tuple[Path, ...] = tuple(file.path for file in found.all_files)
    return {
        "name": found.name,
        "path": str(found.opens),
        "bytes": found.nbytes,
        "files": list(map(str, paths)),
        "problem": found.problem,
    }
