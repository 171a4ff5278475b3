"""Checkpoints as they are published: a folder with config.json, a tokenizer, and weights in safetensors files."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError
from engine.formats import huggingface
from engine.formats.gguf_header import quoted
from engine.formats.index import TensorIndex
from engine.formats.json_text import read_object
from engine.formats.safetensors import MAX_TENSORS, Entry, read_header

SINGLE: Final = "model.safetensors"
INDEX_SUFFIX: Final = ".safetensors.index.json"
INDEX: Final = f"model{INDEX_SUFFIX}"

_SHARD: Final = re.compile(r".*-\d{5}-of-(\d{5})\.safetensors", re.DOTALL)
_ELSEWHERE: Final = re.compile(r"[/\\:\0]")
"""What a file's name has only where it leads out of its folder, or is none."""


def read_folder(folder: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The checkpoint that lies in a folder; `sizes` are as in `open_index`. Raises ModelFileError where it is
    incomplete or damaged, UnsupportedModelError where the engine does not know something in it."""
    return _read(folder, *_files(folder), sizes or {})


def read_tower(folder: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The vision tower of the checkpoint that lies in a folder, seen as a GGUF file of it. Raises as `read_folder`."""
    paths, weight_map = _files(folder)
    sizes = sizes or {}
    return huggingface.translate_tower(folder, _entries(folder, paths, weight_map, sizes), paths, sizes)


def read_file(path: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The checkpoint of which `path` is the index or a file of weights. Raises as `read_folder` does."""
    if path.name.endswith(INDEX_SUFFIX):
        return _read(path.parent, *_shards(path), sizes or {})
    index = path.with_name(INDEX)
    if os.path.isfile(index) and path.name in _weight_map(index).values():
        return _read(path.parent, *_shards(index), sizes or {})
    if shard := _SHARD.fullmatch(path.name):
        raise ModelFileError(
            f"{path.name} is one of {int(shard[1])} files of a model, but the list of them, {INDEX}, is not in "
            f"{path.parent} or does not name it. Download it again."
        )
    return _read(path.parent, (path,), None, sizes or {})


def _files(folder: Path) -> tuple[tuple[Path, ...], dict[str, str] | None]:
    """The files of weights of the checkpoint in a folder, and where each tensor should be, if there are several."""
    if not os.path.isfile(folder / "config.json"):
        raise _no_config(folder)
    if os.path.isfile(folder / SINGLE):
        return (folder / SINGLE,), None
    if os.path.isfile(folder / INDEX):
        return _shards(folder / INDEX)
    raise _no_weights(folder)


def _shards(index: Path) -> tuple[tuple[Path, ...], dict[str, str]]:
    weight_map = _weight_map(index)
    names = sorted(set(weight_map.values()))
    for number, name in enumerate(names, 1):
        if not os.path.isfile(index.with_name(name)):
            raise ModelFileError(
                f"File {number} of the {len(names)} that {index.name} lists is missing: there is no {quoted(name)} in "
                f"{index.parent}. Put all of them into one folder, or download the missing one."
            )
    return tuple(index.with_name(name) for name in names), weight_map


def _read(
    folder: Path, paths: tuple[Path, ...], weight_map: dict[str, str] | None, sizes: Mapping[Path, int]
) -> TensorIndex:
    config = huggingface.Configuration.read(folder)
    translated = huggingface.translate(config, _entries(folder, paths, weight_map, sizes), paths)
    return replace(translated, sizes=sizes)


def _entries(
    folder: Path, paths: Sequence[Path], weight_map: dict[str, str] | None, sizes: Mapping[Path, int]
) -> dict[str, Entry]:
    """The tensors of all files by name, each where the checkpoint's list says."""
    entries: dict[str, Entry] = {}
    for path in paths:
        for name, entry in read_header(path, sizes.get(path)).items():
            if name in entries:
                raise ModelFileError(
                    f"Tensor {quoted(name)} is both in {entries[name].path.name} and in {path.name}: "
                    "these are not files of one model. Download them again."
                )
            entries[name] = entry
        if len(entries) > MAX_TENSORS:
            raise ModelFileError(f"{folder} holds more than {MAX_TENSORS} tensors, more than any sound model has.")
    for name, file in (weight_map or {}).items():
        if name not in entries or entries[name].path.name != file:
            raise ModelFileError(
                f"Tensor {quoted(name)} should be in {file}, but is not: the file belongs to another model, or is "
                "incomplete. Download it again."
            )
    return entries


def _weight_map(index: Path) -> dict[str, str]:
    """The file in which each tensor lies. Every file is known to be one of the index's own folder."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{index.name} is damaged: it has no weight_map. Download it again.")
    for file in weight_map.values():
        if not isinstance(file, str) or not file.endswith(".safetensors") or _ELSEWHERE.search(file):
            raise ModelFileError(
                f"{index.name} is damaged: it lists {reprlib.repr(file)}, which is no safetensors file of its folder. "
                "Download it again."
            )
    return weight_map


def _no_config(folder: Path) -> ModelFileError:
    if any(folder.glob("*.gguf")):
        return ModelFileError(f"{folder} is a folder. Choose the model file (.gguf) in it.")
    if any(folder.glob("*.safetensors")):
        return ModelFileError(
            f"{folder} has no config.json, which says what kind of model its weights belong to. Download it as well."
        )
    return ModelFileError(f"{folder} is a folder without a model: it has no config.json and no GGUF file.")


def _no_weights(folder: Path) -> ModelFileError:
    if any(folder.glob("*.safetensors")):
        return ModelFileError(
            f"{folder} has safetensors files, but neither {SINGLE} nor the list of them, {INDEX}. Download it as well."
        )
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        return ModelFileError(
            f"{folder} holds its weights in PyTorch's own format, which can run code when it is read and is not opened "
            "here. Download the model as safetensors or GGUF."
        )
    return ModelFileError(f"{folder} has a config.json but no weights: there is no {SINGLE}. Download it as well.")
