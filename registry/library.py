"""The folder in which models are kept, and the names by which they are asked for."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from engine.errors import MillstreamError, ModelFileError
from engine.formats import open_index
from engine.units import NAMED, elided
from registry.packaged import STARTER

SUFFIX = ".gguf"
LOOP_ON_WINDOWS = 1921
"""ERROR_CANT_RESOLVE_FILENAME."""


@dataclass(frozen=True)
class LibraryModel:
    """A usable model: a file, or the folder of a checkpoint. `name` is what `Library.resolve` takes."""

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
        found = [
            LibraryModel(self._name(path), path, nbytes)
            for path in self.root.glob("*")
            if not path.name.startswith(".") and (nbytes := _usable_bytes(path))
        ]
        return tuple(sorted(found, key=lambda model: model.name.casefold()))

    def _name(self, path: Path) -> str:
        """Without its suffix, unless that means another one."""
        short = path.name.removesuffix(SUFFIX)
        return path.name if (self.root / short).exists() else short

    def resolve(self, name_or_path: str) -> Path:
        """The file that is meant: the starter by its name, a path, or a name in the library, in this order.

        Fetches nothing: `registry.starter.ensure` does. Raises `ModelFileError`.
        """
        if name_or_path == STARTER.name:
            path = self.root / STARTER.file
            if STARTER.is_whole(path):
                return path
            raise ModelFileError(
                f"The starter model is not in the library yet ({self.root}); `python -m registry.starter` fetches it."
            )
        names = (name_or_path, self.root / name_or_path, self.root / f"{name_or_path}{SUFFIX}") if name_or_path else ()
        meant = [Path(name) for name in names]
        for path in meant:
            if there := _existing(path):
                return there
        for path in meant:
            if broken := _broken_link(path):
                raise ModelFileError(f"“{elided(str(path), NAMED)}” {broken}.")
        known = ", ".join([STARTER.name, *(model.name for model in self.list())])
        raise ModelFileError(
            f"There is no model “{elided(name_or_path, NAMED)}”: it is neither a file nor a name in the library "
            f"({self.root}). "
            f"Known names: {known}."
        )


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


def _usable_bytes(path: Path) -> int:
    """Bytes of a model that can be opened, all its parts together; 0 for anything else, and for later parts of one."""
    try:
        if path.name == STARTER.file and not STARTER.is_whole(path):
            return 0
        if not path.is_dir() and path.suffix != SUFFIX:
            return 0
        index = open_index(path)
        later = path.is_file() and index.paths[0].name != path.name
        return 0 if later else sum(part.stat().st_size for part in index.paths)
    except (MillstreamError, OSError):
        return 0
