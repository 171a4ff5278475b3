"""A checkpoint's configuration, tokenizer and tensors → the index that the engine reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.configuration import Configuration
from engine.formats.huggingface.tokenizer import tokenizer_metadata
from engine.formats.index import Span, TensorIndex, TensorInfo
from engine.formats.safetensors import Entry

ENCODINGS: Final = ("F32", "F16", "BF16")
"""Number types of safetensors that are weight encodings of the engine, under the same names."""

EMBEDDING: Final = "token_embd.weight"
HEAD: Final = "output.weight"


def translate(config: Configuration, entries: Mapping[str, Entry], paths: tuple[Path, ...]) -> TensorIndex:
    """Raises ModelFileError where files contradict each other, UnsupportedModelError for a tensor, a number type or a
    tokenizer that is not known."""
    tensors = _tensors(config, entries)
    metadata, vectors = config.metadata()
    rows = tensors[EMBEDDING].shape[0] if EMBEDDING in tensors else 0
    if rows != config.fields.integer("vocab_size"):
        raise ModelFileError(
            f"The embedding in {paths[0].name} has {rows} rows, but config.json says {config.fields.get('vocab_size')} "
            "(vocab_size): the files belong to different models, or are incomplete. Download them again."
        )
    if not config.tied and HEAD not in tensors:
        raise ModelFileError(
            f"{paths[0].parent} has no tensor lm_head.weight, which its config.json asks for: the checkpoint is "
            "incomplete. Download it again."
        )
    return TensorIndex(paths, metadata | tokenizer_metadata(config.folder, config.naming_ends, rows), tensors, vectors)


def _tensors(config: Configuration, entries: Mapping[str, Entry]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    experts: dict[str, dict[int, Entry]] = {}
    for entry in entries.values():
        name = config.family.gguf_name(entry.name)
        if config.family.leaves_out(entry.name) or (config.tied and name == HEAD):
            continue
        where = f"Tensor {quoted(entry.name)} in {entry.path.name}"
        if name is None:
            raise UnsupportedModelError(
                f"{where} is not known of the architecture {config.family.architecture}, and would be left out."
            )
        if entry.dtype not in ENCODINGS:
            raise UnsupportedModelError(
                f"{where} has numbers of the type {entry.dtype}; checkpoints are read in {', '.join(ENCODINGS)}. "
                "Choose one of those, or a GGUF file of the model."
            )
        expert = config.family.expert(entry.name)
        if expert is not None:
            experts.setdefault(name, {})[expert] = entry
            continue
        key = config.family.heads_key(entry.name)
        heads = config.heads(key) if key else 0
        if heads and (not entry.shape or entry.shape[0] % (2 * heads)):
            raise ModelFileError(
                f"{where} has the shape {list(entry.shape)}, whose rows cannot be shared among {heads} heads ({key}): "
                "it does not belong to this config.json. Download both again."
            )
        shift = config.family.norm_shift if name.endswith("norm.weight") else 0.0
        info = TensorInfo(
            name, entry.shape, entry.dtype, entry.path, entry.offset, entry.nbytes, split_heads=heads, shift=shift
        )
        tensors[name] = config.family.arranged(info, config.fields)
    for name, found in experts.items():
        if name in tensors:
            raise ModelFileError(
                f"{tensors[name].path.name} holds the experts of {name} together, but there are single ones as well, "
                f"such as {quoted(next(iter(found.values())).name)}: the checkpoint is damaged. Download it again."
            )
        tensors[name] = _stacked(name, found)
    return tensors


def _stacked(name: str, experts: Mapping[int, Entry]) -> TensorInfo:
    """One tensor of those of all experts, by their numbers."""
    missing = next((number for number in range(len(experts)) if number not in experts), None)
    if missing is not None:
        raise ModelFileError(
            f"Expert {missing} of {name} is missing, where there is one of the number {max(experts)}: the checkpoint "
            "is incomplete. Download it again."
        )
    first, *others = (experts[number] for number in range(len(experts)))
    for other in others:
        if (other.shape, other.dtype) != (first.shape, first.dtype):
            raise ModelFileError(
                f"Tensor {quoted(other.name)} in {other.path.name} is {list(other.shape)} of {other.dtype}, but that "
                f"of the first expert {list(first.shape)} of {first.dtype}: they belong to different models. "
                "Download them again."
            )
    spans = tuple(Span(entry.path, entry.offset, entry.nbytes) for entry in (first, *others))
    shape, nbytes = (len(spans), *first.shape), sum(span.nbytes for span in spans)
    return TensorInfo(name, shape, first.dtype, first.path, first.offset, nbytes, pieces=spans)
