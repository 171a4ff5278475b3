"""The folder in which models are kept, and the names by which they are asked for."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.errors import MillstreamError, ModelFileError, StorageError
from engine.formats import open_index
from engine.units import NAMED, elided
from registry.links import SUFFIX as LINK
from registry.links import read_link
from registry.packaged import STARTER
from registry.place import MARKER, Place
from registry.provenance import FILE as PROVENANCE
from registry.provenance import read_provenance
from registry.removing import Removal, removal

SUFFIX = ".gguf"
LOOP_ON_WINDOWS = 1921
"""ERROR_CANT_RESOLVE_FILENAME."""
LEVELS = 3
"""Folders within the library's that are looked into: an owner's, a repository's, a model's."""


@dataclass(frozen=True)
class LibraryModel:
    """A model: a file, or the folder of a checkpoint. `name` is what `Library.resolve` takes.

    It is the path in the library, of a downloaded model that of its folder: "<repository>/<model>". `place` is what of
    the library it is: a file or a folder. `linked`: it lies elsewhere, and the library only knows where. `tower` is
    what such a one sees with, where that is not beside it. `problem` says why it cannot be used now.
    """

    name: str
    path: Path
    nbytes: int
    place: Path
    linked: bool = False
    tower: Path | None = None
    problem: str = ""


State = Literal["present", "missing", "unwritable"]


@dataclass(frozen=True)
class Library:
    """The models in the folder `root`, which need not exist yet. What is there is looked up anew at each call.

    `chosen`: a person chose the folder, so that it has a marker, unless its drive is gone.
    """

    root: Path
    chosen: bool = False

    @classmethod
    def default(cls) -> Library:
        """The person's own: `$MILLSTREAM_HOME/models`, else the folder they chose, else where the system keeps data."""
        place = Place.read()
        return cls(place.models, place.chosen)

    def state(self) -> tuple[State, str]:
        """Whether the folder is there and can be written to, and a sentence on it where not."""
        if self.chosen and not (self.root / MARKER).is_file():
            return "missing", (
                f"The models folder {self.root} is not there. Connect the drive that it is on, or choose another "
                "folder."
            )
        there = next(path for path in (self.root, *self.root.parents) if path.exists() or path == path.parent)
        if not os.access(there, os.W_OK):
            return "unwritable", (
                f"The models folder {self.root} can only be read: models in it can be used, but none can be added. "
                "Make it writable, or choose another folder."
            )
        return "present", ""

    def require_there(self) -> None:
        """Raises `StorageError` where its drive is gone: before anything is looked up or written there, lest
        it be taken for empty, or land on another one."""
        state, sentence = self.state()
        if state == "missing":
            raise StorageError(sentence)

    def require_writable(self) -> None:
        """Raises `StorageError` where nothing can be added."""
        state, sentence = self.state()
        if state != "present":
            raise StorageError(sentence)

    def list(self) -> tuple[LibraryModel, ...]:
        """What can be loaded, by name. A file that is still being fetched has another suffix or a hidden folder."""
        return tuple(model for model in self.known() if not model.problem)

    def absent(self) -> tuple[LibraryModel, ...]:
        """What the library knows, but cannot find where it lies: each with its `problem`."""
        return tuple(model for model in self.known() if model.problem and model.linked)

    def known(self) -> tuple[LibraryModel, ...]:
        """The same as `list`, with the absent ones and those that are damaged, each of which has a `problem`."""
        return tuple(sorted(self._models(self.root, LEVELS), key=lambda model: model.name.casefold()))

    def find(self, name: str) -> LibraryModel:
        """The model of this name, or the only one whose name ends with this step, with or without its suffix; also one
        with a problem. Raises `ModelFileError`, `StorageError` where the library's drive is not there."""
        self.require_there()
        models = self.known()
        meant = _meant(models, name)
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise _several(name, meant)
        known = f"It has: {', '.join(model.name for model in models)}." if models else "It is empty."
        raise ModelFileError(f"There is no model “{elided(name, NAMED)}” in the library ({self.root}). {known}")

    def removal(self, name: str) -> Removal:
        """What it means to remove the model of this name. Raises `ModelFileError`, `StorageError`."""
        model = self.find(name)
        return removal(self.root, model.name, model.place)

    def remove(self, name: str) -> int:
        """Delete it from the library, and nothing that lies elsewhere: → how many bytes that frees. What is deleted has
        left the library in one step before.

        Raises `ModelFileError` for an unknown name, `StorageError` where the disk refuses.
        """
        made = self.removal(name)
        made.run()
        return made.frees

    def _models(self, folder: Path, levels: int) -> Iterator[LibraryModel]:
        for path in folder.glob("*"):
            if path.name.startswith("."):
                continue
            if (path / PROVENANCE).is_file():
                yield from self._downloaded(path)
            elif path.name.endswith(LINK):
                yield from self._linked(path)
            elif nbytes := _usable_bytes(path):
                yield LibraryModel(self._name(path), path, nbytes, path)
            elif levels and path.is_dir():
                yield from self._models(path, levels - 1)

    def _downloaded(self, folder: Path) -> Iterator[LibraryModel]:
        """The model of a folder that says where it is from; with a problem where a file of it is not what came."""
        name = self._name(folder)
        kept = read_provenance(folder)
        if kept is None:
            problem = f"What Millstream noted of {name} is damaged on the disk: remove it and download it again."
            yield LibraryModel(name, folder, 0, folder, problem=problem)
            return
        opened = folder / kept.opens
        wrong = kept.damaged or tuple(file.name for file in kept.files if _size(folder / file.name) != file.nbytes)
        if not wrong and not _usable_bytes(opened):
            wrong = (opened.name,)
        problem = _damage(kept.name, wrong) if wrong else ""
        yield LibraryModel(name, opened, sum(file.nbytes for file in kept.files), folder, problem=problem)

    def _linked(self, path: Path) -> Iterator[LibraryModel]:
        if (link := read_link(path)) is not None:
            problem = link.problem()
            if not problem and not _usable_bytes(link.opens, checked=True):
                problem = f"{link.opens} is not a whole model any more. Import it again, or remove it from the library."
            name = path.relative_to(self.root).as_posix().removesuffix(LINK)
            yield LibraryModel(name, link.opens, link.nbytes, path, True, link.tower, problem)

    def tower_of(self, path: Path) -> Path | None:
        """The vision tower of a model that lies elsewhere, where it is not beside it (Ollama names files by hashes)."""
        links = (read_link(file) for file in self.root.rglob(f"*{LINK}"))
        return next((link.tower for link in links if link is not None and link.opens == path), None)

    def _name(self, path: Path) -> str:
        """Without its suffix, unless that means another one."""
        name = path.relative_to(self.root).as_posix()
        short = name.removesuffix(SUFFIX)
        return name if (self.root / short).exists() else short

    def resolve(self, name_or_path: str) -> Path:
        """The file that is meant: the starter by its name, a path, or a name in the library, in this order.

        The last step of a name will do where there is only one such. Fetches nothing: `registry.starter.ensure` does.
        Raises `ModelFileError`, `StorageError` where the library's drive is not there.
        """
        if name_or_path == STARTER.name:
            path = self.root / STARTER.file
            if STARTER.is_whole(path):
                return path
            raise ModelFileError(
                f"The starter model is not in the library yet ({self.root}); `millstream pull starter` fetches it."
            )
        names = (name_or_path, self.root / name_or_path, self.root / f"{name_or_path}{SUFFIX}") if name_or_path else ()
        paths = [Path(name) for name in names]
        for path in paths:
            if there := _existing(path):
                return _opened(there)
        for path in paths:
            if broken := _broken_link(path):
                raise ModelFileError(f"“{elided(str(path), NAMED)}” {broken}.")
        known_models = self.known()
        models = [model for model in known_models if not model.problem]
        meant = _meant(known_models, name_or_path)
        if len(meant) == 1:
            if meant[0].problem:
                raise ModelFileError(meant[0].problem)
            return meant[0].path
        if meant:
            raise _several(name_or_path, meant)
        self.require_there()
        known = ", ".join([STARTER.name, *(model.name for model in models)])
        raise ModelFileError(
            f"There is no model “{elided(name_or_path, NAMED)}”: it is neither a file nor a name in the library "
            f"({self.root}). "
            f"Known names: {known}."
        )


def _meant(models: Iterable[LibraryModel], name: str) -> list[LibraryModel]:
    """By the whole name, else by its last step; the starter by its own."""
    models = tuple(models)
    if name == STARTER.name:
        return [model for model in models if model.place.name == STARTER.file]
    names = (name, name.removesuffix(SUFFIX)) if name else ()
    return [model for model in models if model.name in names] or [
        model for model in models if model.name.rpartition("/")[2] in names
    ]


def _several(name: str, meant: Iterable[LibraryModel]) -> ModelFileError:
    return ModelFileError(
        f"“{name}” means several models in the library: {', '.join(model.name for model in meant)}. Choose one by its "
        "whole name."
    )


def _damage(name: str, files: Iterable[str]) -> str:
    way = f"Repair it in the Library, or by `millstream verify {shlex.quote(name)} --repair`"
    return f"{name} is damaged on the disk ({', '.join(files)}). {way}, or remove it and download it again."


def _existing(path: Path) -> Path | None:
    """`path` with `~` resolved, where it can be and something is there."""
    try:
        path = path.expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, a link loop, an unknown user, a NUL
        return None


def _broken_link(path: Path) -> str | None:
    """What is wrong with `path` where it is a link that leads to nothing."""
    try:
        path = path.expanduser()
        path.stat()
    except FileNotFoundError:
        return "is a link to something that is not there" if path.is_symlink() else None
    except OSError as error:
        looped = error.errno == errno.ELOOP or getattr(error, "winerror", None) == LOOP_ON_WINDOWS
        return "is reached by links that lead back to themselves" if looped else None
    except (RuntimeError, ValueError):
        return None
    return None


def _opened(path: Path) -> Path:
    """By what a model is opened: of a downloaded one's folder, a file in it. Raises ModelFileError for damaged ones."""
    folder = path if path.is_dir() else path.parent
    if (kept := read_provenance(folder)) is None:
        return path
    if (path == folder and kept.damaged) or path.name in kept.damaged:
        raise ModelFileError(_damage(kept.name, kept.damaged))
    return path / kept.opens if path == folder else path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _usable_bytes(path: Path, checked: bool = False) -> int:
    """Bytes of a model that can be opened, all its parts together; 0 for anything else, for later parts, and for
    what a model sees with. `checked`: its name need not tell what it is."""
    try:
        if path.name == STARTER.file and not STARTER.is_whole(path):
            return 0
        if not path.is_dir() and path.suffix != SUFFIX and not checked:
            return 0
        index = open_index(path)
        later = path.is_file() and index.paths[0].name != path.name
        tower = index.metadata.get("general.architecture") == "clip"
        return 0 if later or tower else sum(part.stat().st_size for part in index.paths)
    except (MillstreamError, OSError):
        return 0
