"""What a model is called where a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

from engine.types import ModelInfo


def display_name(info: ModelInfo) -> str:
    """The file's name without its suffix and its encoding: by that name it was chosen, and it lies in the library.

    What the file calls itself is often a label from its training. A checkpoint's files are called alike everywhere;
    its name is the folder's.
    """
    path = Path(info.path)
    stem = info.name if path.suffix == ".safetensors" else path.name.removesuffix(".gguf")
    encoding = main_encoding(info)
    if not encoding:
        return stem
    without = re.sub(rf"[-._]{re.escape(encoding)}(_[SML])?$", "", stem, flags=re.IGNORECASE)
    return without or stem


def main_encoding(info: ModelInfo) -> str:
    """The encoding that most of the weights have; empty where the file tells of none."""
    return next(iter(info.encodings), "")
