"""The registry of containers: a model on disk becomes a `TensorIndex`, whichever format it is in.

A container joins by a file of its own and a line in `open_index`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.errors import ModelFileError
from engine.formats import checkpoint, gguf
from engine.formats.cursor import opened
from engine.formats.gguf_header import MAGIC
from engine.formats.index import TensorIndex
from engine.formats.recognise import BEGINNING, check_file, is_folder, like_safetensors, looks_like


def open_index(path: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The model at `path`, with all the files that belong to it: a GGUF file, or a checkpoint as a folder or any file
    of its weights. `sizes` are the true ones of files of weights of which only the beginning is here, with the header.

    Every tensor's span is known to lie inside its file. Raises ModelFileError for what is missing, damaged or no model,
    UnsupportedModelError for a sound file with something in it that the engine does not know.
    """
    if is_folder(path):
        return checkpoint.read_folder(path, sizes)
    check_file(path)
    with opened(path) as file:
        beginning = file.read(BEGINNING)
    if beginning.startswith(MAGIC):
        return gguf.read(path, sizes)
    if like_safetensors(beginning) or path.name.endswith((".safetensors", checkpoint.INDEX_SUFFIX)):
        return checkpoint.read_file(path, sizes)
    raise ModelFileError(
        f"{path.name} is not a model that can be read: it {looks_like(beginning)}. Choose a GGUF file (.gguf), or the "
        "folder of a safetensors checkpoint."
    )
