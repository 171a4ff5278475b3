"""The file of a vision tower: where it lies, how its tensors are seen, and the tower that it holds."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final

from engine import weights
from engine.cancel import Cancel
from engine.errors import ModelFileError, UnsupportedModelError, naming
from engine.formats import checkpoint, open_index
from engine.formats.huggingface import has_tower
from engine.formats.index import TensorIndex, TensorInfo
from engine.formats.recognise import is_folder
from engine.kernels.ops import Ops
from engine.memory.meter import Meter, require_free
from engine.memory.store import WeightStore
from engine.models.metadata import Metadata
from engine.types import LoadProgress
from engine.vision import gemma3, tower
from engine.vision.tower import Tower

ARCHITECTURE: Final = "clip"
PRECISIONS: Final = ("F16", "BF16", "Q8_0", "F32")
"""In the order in which `all_beside` prefers them."""
MOST: Final = 16
"""Files beside a model that are looked at."""
SOUND: Final = ("a.", "mm.a.")
"""How the names of tensors begin that belong to a tower for sound."""

_WORD: Final = re.compile(r"[a-z0-9]+")


def all_beside(model: Path) -> list[Path]:
    """What `read_projector` may read a model's vision tower from, the likeliest first, at most MOST.

    Of a checkpoint, given as its folder or a file in it, it is the folder. Of a GGUF file it is another in its folder.
    Such a file is named as llama.cpp names it, with "mmproj" in its name and the suffix .gguf. Of several, one whose
    name shares most words with the model's, from the first on, is before others; then by precision: F16, BF16, Q8_0,
    F32, any other; then by name. Raises ModelFileError for a checkpoint with a damaged config.json.
    """
    if model.is_dir() or model.suffix.lower() != ".gguf":
        folder = model if model.is_dir() else model.parent
        return [folder] if has_tower(folder) else []
    try:
        names = [entry.name for entry in os.scandir(model.parent) if _is_projector(entry)]
    except OSError:
        return []
    return [model.with_name(name) for name in likeliest(model.stem, names) if name != model.name][:MOST]


def likeliest(model: str, names: Iterable[str]) -> list[str]:
    """Names of towers' files, in the order in which `all_beside` prefers them for a model of this name."""
    wanted = _words(model)

    def rank(name: str) -> tuple[int, int, str]:
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(wanted, _words(name), strict=False))
        kinds = (
            at for at, kind in enumerate(PRECISIONS) if re.search(rf"(?<![A-Z0-9]){kind}(?![A-Z0-9])", name.upper())
        )
        return -len(list(shared)), next(kinds, len(PRECISIONS)), name

    return sorted(names, key=rank)


def read_projector(path: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The index of a vision tower's file, or of a checkpoint's folder, without what belongs to sound. `sizes` are as in
    `open_index`.

    A convolution's weights are seen as a matrix with a row for each output. Raises ModelFileError for a file that is
    damaged or no vision tower, UnsupportedModelError for one with something in it that the engine does not know.
    """
    index = checkpoint.read_tower(path, sizes) if is_folder(path) else open_index(path, sizes)
    metadata, file = Metadata(index.metadata), index.paths[0].name
    with naming(file):
        if metadata.text("general.architecture", default="") != ARCHITECTURE:
            raise ModelFileError(f"{file} is not a vision tower: choose the file whose name has mmproj in it.")
        if not metadata.flag("clip.has_vision_encoder", default=True):
            raise UnsupportedModelError(f"{file} has no tower for pictures (clip.has_vision_encoder).")
        projector = tower.projector_name(index)
    tensors = {name: _seen(info) for name, info in index.tensors.items() if not name.startswith(SOUND)}
    if projector == gemma3.NAME:
        # llama.cpp's converter leaves the projection as Transformers multiplies with it, inputs by outputs.
        name = "mm.input_projection.weight"
        if name in tensors:
            tensors[name] = _transposed(tensors[name])
    return replace(index, tensors=tensors)


def load_tower(
    index: TensorIndex,
    ops: Ops,
    meter: Meter,
    *,
    progress: Callable[[LoadProgress], None] | None = None,
    cancel: Cancel | None = None,
) -> Tower:
    """The tower of such a file, its weights in memory. Raises as `tower.build`, and ModelFileError for a tensor that
    the tower has no use for, BudgetError where too little memory is free."""
    require_free(
        sum(info.nbytes for info in index.tensors.values()),
        index.paths[0].name,
        "close other programs or choose a smaller file",
    )
    with closing(WeightStore(index, ops, meter, progress=progress, cancel=cancel)) as store:
        built = tower.build(index, store)
        store.require_all_used("")
    return built


def _seen(info: TensorInfo) -> TensorInfo:
    """Tensors of more than two dimensions as matrices: tables of positions by their last, weights by their first."""
    if len(info.shape) <= 2:
        return info
    if info.name.startswith("v.position_embd"):
        return replace(info, shape=(math.prod(info.shape[:-1]), info.shape[-1]))
    return replace(info, shape=(info.shape[0], math.prod(info.shape[1:])))


def _transposed(info: TensorInfo) -> TensorInfo:
    if len(info.shape) != 2:
        return info
    if weights.get(info.encoding).block > 1:
        raise UnsupportedModelError(
            f"Tensor {info.name} in {info.path.name} is packed in {info.encoding}, which cannot be turned around: use "
            "a file in F16, BF16 or F32."
        )
    return replace(info, shape=info.shape[::-1], transposed=True)


def _is_projector(entry: os.DirEntry[str]) -> bool:
    name = entry.name.lower()
    return "mmproj" in name and name.endswith(".gguf") and entry.is_file()


def _words(name: str) -> list[str]:
    """The words of a file's name without those that tell a tower from its model."""
    return [word for word in _WORD.findall(name.lower()) if word not in ("mmproj", "model")]
