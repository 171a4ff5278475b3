"""The folder in which models are kept, and the names by which they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from engine.errors import MillstreamError, ModelFileError
from engine.formats import open_index
from registry.packaged import STARTER
from registry.provenance import FILE as PROVENANCE
from registry.provenance import read_provenance

SUFFIX = ".gguf"
LEVELS = 3
"""Folders within the library's that are looked into: an owner's, a repository's, a model's."""


@dataclass(frozen=True)
class LibraryModel:
    """A usable model: a file, or the folder of a checkpoint. `name` is what `Library.resolve` takes.

    It is the path in the library, of a downloaded model that of its folder: "<repository>/<model>".
    """

    name: str
    path: Path
    nbytes: int


@dataclass(frozen=True)
class Library:
    """The models in the folder `root`, which need not exist yet. What is there is looked up anew at each call."""

    root: Path

    @classmethod
    def default(cls) -> Library:
        """The person's own: `$MILLSTREAM_HOME/models`, else a folder where the system keeps such data."""
        home = os.environ.get("MILLSTREAM_HOME")
        base = Path(home).expanduser() if home else user_data_path("millstream", appauthor=False)
        return cls(base / "models")

    def list(self) -> tuple[LibraryModel, ...]:
        """What can be loaded, by name. A file that is still being fetched has another suffix or a hidden folder."""
        return tuple(sorted(self._models(self.root, LEVELS), key=lambda model: model.name.casefold()))

    def _models(self, folder: Path, levels: int) -> Iterator[LibraryModel]:
        for path in folder.glob("*"):
            if path.name.startswith("."):
                continue
            if (path / PROVENANCE).is_file():
                yield from self._downloaded(path)
            elif nbytes := _usable_bytes(path):
                yield LibraryModel(self._name(path), path, nbytes)
            elif levels and path.is_dir():
                yield from self._models(path, levels - 1)

    def _downloaded(self, folder: Path) -> Iterator[LibraryModel]:
        """The model of a folder that says where it is from, unless a file of it is not what came."""
        kept = read_provenance(folder)
        if kept is None or kept.damaged:
            return
        if _usable_bytes(opened := folder / kept.opens) and all(
            _size(folder / file.name) == file.nbytes for file in kept.files
        ):
            yield LibraryModel(self._name(folder), opened, sum(file.nbytes for file in kept.files))

    def _name(self, path: Path) -> str:
        """Without its suffix, unless that means another one."""
        name = path.relative_to(self.root).as_posix()
        short = name.removesuffix(SUFFIX)
        return name if (self.root / short).exists() else short

    def resolve(self, name_or_path: str) -> Path:
        """The file that is meant: the starter by its name, a path, or a name in the library, in this order.

        The last step of a name will do where there is only one such. Fetches nothing: `registry.starter.ensure` does.
        Raises `ModelFileError`.
        """
        if name_or_path == STARTER.name:
            path = self.root / STARTER.file
            if STARTER.is_whole(path):
                return path
            raise ModelFileError(
                f"The starter model is not in the library yet ({self.root}); `python -m registry.starter` fetches it."
            )
        for path in (Path(name_or_path), self.root / name_or_path, self.root / f"{name_or_path}{SUFFIX}"):
            if name_or_path and (there := _existing(path)):
                return _opened(there)
        models = self.list()
        meant = [model for model in models if name_or_path and model.name.rpartition("/")[2] == name_or_path]
        if len(meant) == 1:
            return meant[0].path
        if meant:
            raise ModelFileError(
                f"“{name_or_path}” means several models in the library: {', '.join(model.name for model in meant)}. "
                "Choose one by its whole name."
            )
        known = ", ".join([STARTER.name, *(model.name for model in models)])
        raise ModelFileError(
            f"There is no model “{name_or_path}”: it is neither a file nor a name in the library ({self.root}). "
            f"Known names: {known}."
        )


def _existing(path: Path) -> Path | None:
    """`path` with `~` resolved, where it can be and something is there."""
    try:
        path = path.expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, a link loop, an unknown user, a NUL
        return None


def _opened(path: Path) -> Path:
    """By what a model is opened: of a downloaded one's folder, a file in it. Raises ModelFileError for damaged ones."""
    folder = path if path.is_dir() else path.parent
    if (kept := read_provenance(folder)) is None:
        return path
    if (path == folder and kept.damaged) or path.name in kept.damaged:
        raise ModelFileError(
            f"{kept.name} is damaged on the disk ({', '.join(kept.damaged)}): repair it, or remove it and download it "
            "again."
        )
    return path / kept.opens if path == folder else path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _usable_bytes(path: Path) -> int:
    """Bytes of a model that can be opened, all its parts together; 0 for anything else, for later parts, and for
    what a model sees with."""
    try:
        if path.name == STARTER.file and not STARTER.is_whole(path):
            return 0
        if not path.is_dir() and path.suffix != SUFFIX:
            return 0
        index = open_index(path)
        later = path.is_file() and index.paths[0].name != path.name
        tower = index.metadata.get("general.architecture") == "clip"
        return 0 if later or tower else sum(part.stat().st_size for part in index.paths)
    except (MillstreamError, OSError):
        return 0
