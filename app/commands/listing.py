"""`millstream list`: what is in the library."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import options
from app.console import complain, note, table, write
from engine import human_bytes
from engine.units import plural

if TYPE_CHECKING:
    from registry.library import LibraryModel

NAME = "list"
SUMMARY = "list the models in the library"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.downloads.record import left_behind
    from registry.library import Library

    library = Library.default()
    models = library.known()
    if arguments.json:
        listed = [_fields(model) for model in models]
        told = {"folder": str(library.root), "state": library.state()[0], "models": listed}
        write(json.dumps(told, ensure_ascii=False) + "\n")
        return 0
    library.require_there()
    if models:
        rows = [(model.name, human_bytes(model.nbytes), _mark(model)) for model in models]
        write(table(rows, right=(1,)))
    else:
        complain(f"There are no models in {library.root} yet; `millstream pull starter` fetches the starter.")
    for model in models:
        if model.problem:
            complain(model.problem)
    if left := len(left_behind(library.root)):
        note(f"{left} {plural(left, 'download')} more, not whole yet: millstream downloads")
    return 0


def _state(model: LibraryModel) -> str:
    if not model.problem:
        return "ready"
    return "missing" if model.linked else "damaged"


def _mark(model: LibraryModel) -> str:
    """What is to be known of it: most models are ready, and in the library."""
    if model.problem:
        return _state(model)
    return "where it lay" if model.linked else ""


def _fields(model: LibraryModel) -> dict[str, object]:
    from registry.provenance import read_provenance

    kept = read_provenance(model.place)
    return {
        "name": model.name,
        "path": str(model.path),
        "bytes": model.nbytes,
        "state": _state(model),
        "problem": model.problem,
        "linked": model.linked,
        "repository": kept.repository if kept else "",
        "licence": kept.licence if kept else "",
        "downloaded": kept.day if kept else "",
    }
