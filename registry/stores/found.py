"""A model that another program keeps, or that lies in some folder, and what the engine says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from engine.errors import MillstreamError, ModelFileError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.info import describe
from engine.vision.eyes import Eyes

Store = Literal["hub", "lmstudio", "ollama", "llamacpp", "folder"]
STORES: Final[dict[Store, str]] = {
    "hub": "the Hub's cache",
    "lmstudio": "LM Studio",
    "ollama": "Ollama",
    "llamacpp": "llama.cpp's cache",
    "folder": "a folder",
}
"""What a person calls them."""


@dataclass(frozen=True)
class FoundFile:
    """`name` is what it is called in a folder of its model, whatever it is called at `path`. `sha256` is "" where the
    store does not tell it."""

    name: str
    path: Path
    nbytes: int
    sha256: str = ""


@dataclass(frozen=True)
class Found:
    """`name` is "<repository>/<model>", or as much of it as is known.

    `files` are all that belongs to it: weights first, in the order of their parts. `opens` is what it is opened by, one
    of them, or their folder. `towers` may be what it sees with; `checked` chooses among them. `repository`, `revision`
    and `folder` (in it) are those of the Hub, "" where they are not known. `problem` is a sentence on why it
    cannot be used, "" as far as is known.
    """

    name: str
    store: Store
    files: tuple[FoundFile, ...]
    opens: Path
    towers: tuple[FoundFile, ...] = ()
    tower: FoundFile | None = None
    repository: str = ""
    revision: str = ""
    folder: str = ""
    problem: str = ""

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.all_files)

    @property
    def all_files(self) -> tuple[FoundFile, ...]:
        """With the tower that was chosen."""
        return (*self.files, self.tower) if self.tower is not None else self.files

    @property
    def weights(self) -> FoundFile:
        """The first file of weights, by whose bytes the model is known."""
        return self.files[0]


@dataclass(frozen=True)
class Survey:
    """`sentence` says why there may be more than was found; "" where there is not."""

    found: tuple[Found, ...]
    sentence: str = ""


def checked(found: Found) -> Found:
    """The same, with its tower, or with what is wrong with it. Headers are read, no weights."""
    if found.problem:
        return found
    try:
        return require(found)
    except MillstreamError as error:
        return replace(found, problem=str(error))


def require(found: Found) -> Found:
    """The same with its tower. Raises ModelFileError where it is damaged or no model, UnsupportedModelError where the
    engine does not know it."""
    if found.problem:
        raise ModelFileError(found.problem)
    index = open_index(found.opens)
    if index.metadata.get("general.architecture") == "clip":
        raise tower_alone(found.weights.path)
    tower = _tower(found, index)
    describe(found.opens, mmproj=None if tower is None else tower.path)
    return replace(found, tower=tower)


def tower_alone(path: Path) -> ModelFileError:
    return ModelFileError(
        f"{path.name} is a vision tower, by which a model sees, and not a model. Choose the model that it was "
        "published with: what lies beside it comes along."
    )


def _tower(found: Found, index: TensorIndex) -> FoundFile | None:
    """The one that a store pairs with it, else the first that fits, as the engine chooses."""
    for file in found.towers if found.tower is None else (found.tower,):
        try:
            Eyes(file.path, index)
        except MillstreamError:
            continue
        return file
    return None
