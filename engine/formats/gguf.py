"""GGUF models: the tensors of one file, or of all the files that a model was split into."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine import weights
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import Header, magic_at, quoted, read_header
from engine.formats.index import TensorIndex, TensorInfo

_PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.DOTALL | re.IGNORECASE)
"""How llama.cpp names the files of a split model, counting from 1."""
_BLOCK = re.compile(r"blk\.(\d{1,9})\.", re.ASCII)


@dataclass(frozen=True)
class _Part:
    """One file: its header, its tensors, and what it says of its place among `count` files."""

    header: Header
    tensors: dict[str, TensorInfo]
    number: int
    count: int

    @property
    def path(self) -> Path:
        return self.header.path


def read(path: Path, sizes: Mapping[Path, int] | None = None) -> TensorIndex:
    """The model that `path` is, or is one part of. The metadata is that of the first part. Blocks that only draft
    tokens for a model to check, which `block_count` counts last, are left out. `sizes` are as in `open_index`.

    Raises ModelFileError where a file is damaged, cut short, or missing from the split, UnsupportedModelError for a
    version, byte order or weight encoding that the engine does not read.
    """
    sizes = sizes or {}
    part = _read_part(path, sizes)
    parts = _all_parts(part, sizes) if part.count > 1 else [part]
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        twice = next((name for name in part.tensors if name in tensors), None)
        if twice is not None:
            raise ModelFileError(
                f"Tensor {quoted(twice)} is both in {tensors[twice].path.name} and in {part.path.name}: "
                "these are not parts of one model. Download them again."
            )
        tensors |= part.tensors
    if len(parts) > 1:
        _check_total(parts[0], len(tensors))
    metadata = parts[0].header.metadata
    return TensorIndex(tuple(part.path for part in parts), metadata, _without_drafting(metadata, tensors), sizes=sizes)


def _without_drafting(metadata: Mapping[str, object], tensors: dict[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors but those of the last `nextn_predict_layers` blocks."""
    prefix = metadata.get("general.architecture")
    blocks, drafting = (metadata.get(f"{prefix}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if not isinstance(blocks, int) or not isinstance(drafting, int) or not 0 < drafting < blocks:
        return tensors
    numbered = ((name, _BLOCK.match(name)) for name in tensors)
    return {name: tensors[name] for name, block in numbered if block is None or int(block[1]) < blocks - drafting}


def _read_part(path: Path, sizes: Mapping[Path, int]) -> _Part:
    header = read_header(path, sizes.get(path))
    tensors = _tensors(header)
    end = max((info.offset + info.nbytes for info in tensors.values()), default=header.data_start)
    if magic_at(path, [position for position in (end, header.aligned(end)) if position < header.size]):
        raise ModelFileError(
            f"{path.name} is several GGUF files joined end to end, as cat does. Use the separate files as they were "
            "published, or one that was merged by llama.cpp's gguf-split."
        )
    return _Part(
        header,
        tensors,
        number=_number(header, "split.no", default=0) + 1,
        count=_number(header, "split.count", default=1),
    )


def _tensors(header: Header) -> dict[str, TensorInfo]:
    """Each entry's span of bytes, computed from its shape and encoding and checked against the file's length."""
    if header.entries and header.big_endian:
        raise UnsupportedModelError(
            f"{header.path.name} holds big-endian weights, which this engine does not read. "
            "Use the little-endian file of the same model."
        )
    tensors: dict[str, TensorInfo] = {}
    for entry in header.entries:
        where = f"Tensor {quoted(entry.name)} in {header.path.name}"
        try:
            encoding = weights.by_ggml_type(entry.ggml_type)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{where}: {error}") from None
        columns = entry.shape[-1] if entry.shape else 1
        if columns % encoding.block:
            raise ModelFileError(
                f"{where} has rows of {columns} weights, but {encoding.name} packs them in blocks of {encoding.block}: "
                "the file is damaged. Download it again."
            )
        if entry.offset % header.alignment:
            raise ModelFileError(
                f"{where} begins at byte {entry.offset} of the data, which is no multiple of the alignment "
                f"{header.alignment}: the file is damaged. Download it again."
            )
        nbytes = math.prod(entry.shape) // encoding.block * encoding.block_bytes
        offset = header.data_start + entry.offset
        if offset + nbytes > header.size:
            raise ModelFileError(
                f"{where} should end at byte {offset + nbytes}, but the file has only {header.size}: "
                "it is cut short or damaged. Download it again."
            )
        tensors[entry.name] = TensorInfo(entry.name, entry.shape, encoding.name, header.path, offset, nbytes)
    return tensors


def _all_parts(opened: _Part, sizes: Mapping[Path, int]) -> list[_Part]:
    """All parts in order, found by name and checked against what each says of itself."""
    name = _PART_NAME.fullmatch(opened.path.name)
    if name is None or int(name[3]) != opened.count:
        raise ModelFileError(
            f"{opened.path.name} is part {opened.number} of a model in {opened.count} files, but its name does not end "
            f"in -{opened.number:05d}-of-{opened.count:05d}.gguf, so the others cannot be found. "
            "Give all parts their published names back."
        )
    parts = []
    for number in range(1, opened.count + 1):
        path = opened.path.with_name(f"{name[1]}-{number:05d}-of-{name[3]}{name[4]}")
        if not os.path.isfile(path):
            raise ModelFileError(
                f"Part {number} of {opened.count} of the model is missing: there is no {path.name} in {path.parent}. "
                "Put all parts into one folder, or download the missing one."
            )
        part = opened if path == opened.path else _read_part(path, sizes)
        if (part.number, part.count) != (number, opened.count):
            raise ModelFileError(
                f"{path.name} says of itself that it is part {part.number} of {part.count}: "
                "it was renamed, or belongs to another model. Download it again."
            )
        parts.append(part)
    return parts


def _check_total(first: _Part, held: int) -> None:
    total = _number(first.header, "split.tensors.count", default=held)
    if total != held:
        raise ModelFileError(
            f"The {first.count} parts that begin with {first.path.name} hold {held} tensors, but should hold {total}: "
            "some part belongs to another model. Download them again."
        )


def _number(header: Header, key: str, *, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ModelFileError(f"{header.path.name} is damaged: its {key} is not a count. Download it again.")
    return value
