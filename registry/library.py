"""The folder in which models are kept, and the names by which they are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path

from engine.errors import ModelFileError
from registry.packaged import STARTER

SUFFIX = ".gguf"


@dataclass(frozen=True)
class LibraryModel:
    """A usable model file. `name` is what `Library.resolve` takes."""

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
        found = []
        for path in self.root.glob(f"*{SUFFIX}"):
            if path.name.startswith(".") or not path.is_file():
                continue
            nbytes = path.stat().st_size
            if nbytes and not (path.name == STARTER.file and nbytes != STARTER.size):
                found.append(LibraryModel(path.name.removesuffix(SUFFIX), path, nbytes))
        return tuple(sorted(found, key=lambda model: model.name.casefold()))

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
        if name_or_path and (path := Path(name_or_path).expanduser()).exists():
            return path
        models = self.list()
        for model in models:
            if name_or_path in (model.name, model.path.name):
                return model.path
        known = ", ".join([STARTER.name, *(model.name for model in models)])
        raise ModelFileError(
            f"There is no model “{name_or_path}”: it is neither a file nor a name in the library ({self.root}). "
            f"Known names: {known}."
        )
