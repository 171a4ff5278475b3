"""The seam that a vision tower joins, and the projectors that this engine knows, by the name that a file gives."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from engine.cancel import Cancel
from engine.errors import ModelFileError, UnsupportedModelError, naming
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.vision import gemma3, gemma4, idefics3, qwen3vl
from engine.vision.images import Pixels
from engine.vision.patches import Picture


class Tower(Protocol):
    """A loaded vision tower with its projector. It owns no state between calls but its weight handles."""

    name: str
    """The projector's, such as "qwen3vl_merger"."""
    hidden_size: int
    """The width of the text model that it was made for."""
    width: int
    """Of an output row: `hidden_size`, times one more than it has DeepStack levels."""
    merge: int
    """Patches along each side of what becomes one token."""

    def prepare(self, image: Pixels, max_patches: int | None = None) -> Picture:
        """The picture as the tower sees it: uint8 RGB [height, width, 3] → at most so many patches.

        Raises ImageError for a picture that the model does not take, SettingsError for a cap below its least.
        """
        ...

    def encode(self, ops: Ops, picture: Picture, cancel: Cancel | None = None) -> Tensor:
        """[picture.tokens, width]: each token's features, then its DeepStack levels in the order of the text layers
        that they are added to.

        A cancelled one raises `Cancelled` before its next layer.
        """
        ...


Projector = Callable[[TensorIndex, WeightLoader], Tower]
"""Makes a tower from a file's index, as `engine.vision.projector` reads it, and its weights."""

PROJECTORS: Final[Mapping[str, Projector]] = MappingProxyType(
    {
        gemma3.NAME: gemma3.build,
        gemma4.NAME: gemma4.build,
        idefics3.NAME: idefics3.build,
        qwen3vl.NAME: qwen3vl.build,
    }
)


def projector_name(index: TensorIndex) -> str:
    """The projector that a file names. Raises UnsupportedModelError for an unknown one, ModelFileError for none.

    A file with a tower for sound as well names each by a key of its own.
    """
    metadata, file = Metadata(index.metadata), index.paths[0].name
    key = "clip.projector_type"
    if key not in metadata:
        key = "clip.vision.projector_type"
    name = metadata.text(key, default="")
    if not name:
        raise ModelFileError(f"{file} names no projector ({key}); it is incomplete, fetch it again.")
    if name not in PROJECTORS:
        known = ", ".join(sorted(PROJECTORS))
        raise UnsupportedModelError(f"The projector {reprlib.repr(name)} of {file} is not one of those known: {known}.")
    return name


def build(index: TensorIndex, load: WeightLoader) -> Tower:
    """The tower that a file describes, its weights taken from `load`.

    Raises UnsupportedModelError for a projector or a variant that is not known, ModelFileError for metadata that cannot
    be true or a tensor that does not fit it; each names the file.
    """
    with naming(index.paths[0].name):
        return PROJECTORS[projector_name(index)](index, load)
