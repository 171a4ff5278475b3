"""`millstream downloads`: what is not whole yet, to be seen and to be deleted."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import options
from app.console import complain, note, table, tell, write
from app.downloading import share
from engine import SettingsError, human_bytes
from engine.units import NAMED, elided

if TYPE_CHECKING:
    from registry.downloads.item import Item

NAME = "downloads"
SUMMARY = "list the downloads that are not whole yet, or delete one"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--remove", type=options.text, metavar="ID", help="delete what came of this one, by its ID or its name"
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.downloads.queue import Downloads
    from registry.library import Library

    library = Library.default()
    library.require_there()
    with Downloads(library, ()) as downloads:
        items = downloads.items()
        removed = None
        if arguments.remove is not None:
            removed = _meant(items, arguments.remove)
            downloads.remove(removed.id)
            items = downloads.items()
    if arguments.json:
        told = {"downloads": [_fields(item) for item in items]} | ({"removed": removed.id} if removed else {})
        write(json.dumps(told, ensure_ascii=False) + "\n")
    elif removed is not None and removed.repair:
        tell(f"The repair of {removed.name} is stopped. It is in the library again, damaged as far as it is.")
    elif removed is not None:
        tell(f"{removed.name} is deleted; {human_bytes(removed.done)} of it had come.")
    elif items:
        rows = [
            (item.id, item.name, f"{human_bytes(item.done)} of {human_bytes(item.nbytes)}", f"{share(item)} %")
            for item in items
        ]
        write(table(rows, right=(2, 3)))
        for item in items:
            if item.sentence:
                complain(f"{item.name}: {item.sentence}")
        if (order := _order(items[0])) is not None:
            note(f"\nTo go on: {order}\nTo delete one: millstream downloads --remove {items[0].id}")
    else:
        complain("Every download is whole.")
    return 0


def _meant(items: Sequence[Item], name: str) -> Item:
    meant = [item for item in items if item.id == name] or [item for item in items if item.name == name]
    if len(meant) == 1:
        return meant[0]
    known = ", ".join(f"{item.id} ({item.name})" for item in items) or "none"
    if meant:
        raise SettingsError(f"“{name}” means several downloads: choose one by its ID. There are: {known}.")
    raise SettingsError(f"There is no unfinished download “{elided(name, NAMED)}”. There are: {known}.")


def _order(item: Item) -> str | None:
    """The command that goes on with it."""
    if item.wanted is None or item.wanted.files[0].source != "hub":
        return None
    first = item.wanted.opens or item.wanted.files[0]
    which = f":{first.path}" if item.wanted.opens is not None else ":safetensors"
    return f"millstream pull {shlex.quote(first.repository + which)}"


def _fields(item: Item) -> dict[str, object]:
    return {
        "id": item.id,
        "name": item.name,
        "repository": item.wanted.files[0].repository if item.wanted else "",
        "state": item.state,
        "sentence": item.sentence,
        "bytes": item.nbytes,
        "done": item.done,
        "files": [{"name": file.name, "bytes": file.nbytes, "done": file.done} for file in item.files],
    }
