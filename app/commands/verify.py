"""`millstream verify`: whether a downloaded model is still what came."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import downloading, options
from app.console import BAD_INPUT, Progress, complain, find_model, tell, write
from engine import ModelFileError

if TYPE_CHECKING:
    from registry.library import Library, LibraryModel

NAME = "verify"
SUMMARY = "read a downloaded model again, and tell whether it is still what came"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=options.text, metavar="NAME", help="a name that millstream list tells, or starter"
    )
    parser.add_argument("--repair", action="store_true", help="download again what is damaged")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library
    from registry.packaged import STARTER

    library = Library.default()
    if arguments.model == STARTER.name:
        name, damaged, repaired = _starter(library, arguments.repair)
    else:
        model = library.find(arguments.model)
        name = model.name
        damaged = _damaged(model)
        repaired = bool(damaged) and arguments.repair
        if repaired:
            _repair(library, model)
    if arguments.json:
        told = {"name": name, "damaged": list(damaged), "repaired": repaired}
        write(json.dumps(told, ensure_ascii=False) + "\n")
    if not damaged:
        _say(f"{name} is what it was when it came.", arguments)
    elif repaired:
        _say(f"{name} was damaged ({', '.join(damaged)}), and is whole again.", arguments)
    else:
        complain(
            f"{name} is damaged ({', '.join(damaged)}). To repair it: millstream verify {shlex.quote(name)} --repair"
        )
        return BAD_INPUT
    return 0


def _say(text: str, arguments: argparse.Namespace) -> None:
    if not arguments.json:
        tell(text)


def _starter(library: Library, repair: bool) -> tuple[str, tuple[str, ...], bool]:
    from registry.packaged import STARTER

    path = library.root / STARTER.file
    if not path.exists():
        raise ModelFileError("The starter is not in the library yet: millstream pull starter")
    damaged = () if STARTER.is_whole(path) else (STARTER.file,)
    if damaged and repair:
        find_model(STARTER.name)
    return STARTER.name, damaged, bool(damaged) and repair


def _damaged(model: LibraryModel) -> tuple[str, ...]:
    from registry.downloads.verify import verify

    if model.linked:
        raise ModelFileError(
            f"{model.name} lies where it was imported from ({model.path}), so nothing is known of what came: it cannot "
            "be verified."
        )
    line = Progress()
    try:
        return verify(model.place, lambda step: line.show(step.what, step.done, step.total))
    finally:
        line.clear()


def _repair(library: Library, model: LibraryModel) -> None:
    from registry.sources.hub import Hub

    try:
        downloading.bring(lambda downloads: downloads.repair(model.place), library, [Hub.from_environment()])
    except KeyboardInterrupt:
        tell("Paused. millstream downloads tells how to go on.")
        raise
