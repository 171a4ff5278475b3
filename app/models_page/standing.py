"""Where the models are, whether that place is there, and a move of it that was cut off. No Qt."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from registry.library import Library, State


@dataclass(frozen=True)
class Cut:
    """A move that was cut off. `copied`: all is in `target`, and in use there; files are left in `source`."""

    source: Path
    target: Path
    copied: bool


@dataclass(frozen=True)
class Standing:
    """`sentence` says what is wrong with the folder `root`; `free` are the bytes left on its drive, None where nobody
    knows."""

    root: Path
    state: State = "present"
    sentence: str = ""
    free: int | None = None
    cut: Cut | None = None


def stand(library: Library, settings: Path | None) -> Standing:
    """Looks at the disk."""
    state, sentence = library.state()
    return Standing(library.root, state, sentence, _free(library.root), _cut(settings))


def shortened(path: Path) -> str:
    """The path as the person knows it, with "~" for their home."""
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(path)


def _free(root: Path) -> int | None:
    try:
        there = next((path for path in (root, *root.parents) if path.exists()), None)
        return shutil.disk_usage(there).free if there is not None else None
    except OSError:
        return None


def _cut(settings: Path | None) -> Cut | None:
    from registry.place import Place

    place = Place.read(settings)
    if place.leaving is not None:
        return Cut(place.leaving, place.models, True)
    if place.coming is not None:
        return Cut(place.models, place.coming, False)
    return None
