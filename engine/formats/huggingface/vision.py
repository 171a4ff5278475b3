"""A checkpoint's vision tower → the names and keys that a GGUF file of it would have (llama.cpp's `MmprojModel`).

Names on the left are those of Transformers' classes. Numbers for pictures are those of the checkpoint's processor.
The two frames that Qwen's patches have are one convolution here and two matrices there, whose sums are rounded apart.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from engine import weights
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.cursor import opened
from engine.formats.gguf_header import quoted
from engine.formats.huggingface import gemma4_vision
from engine.formats.huggingface.configuration import FILE, MAX_BYTES
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.translate import ENCODINGS
from engine.formats.index import TensorIndex, TensorInfo
from engine.formats.json_text import read_object
from engine.formats.safetensors import Entry

PROCESSORS: Final = ("preprocessor_config.json", "processor_config.json")
"""The second replaces what both have."""
GELU: Final = "gelu_pytorch_tanh"
MAX_LAYERS: Final = 2**12
MAX_NORM: Final = 2**22
"""Elements of a norm that is read to be changed."""

_TOWER: Final = re.compile(r"(?:model\.)?(?:visual|vision_tower)\.(?:vision_model\.)?(.+)")
_PROJECTOR: Final = re.compile(r"(?:model\.)?(?:multi_modal_projector|embed_vision)\.(.+)")
_LAYER: Final = re.compile(
    r"(?:blocks|encoder\.layers)\.(0|[1-9][0-9]{0,4})\.(.+)\.(weight|bias|(?:input|output)_(?:min|max))"
)
_LEVEL: Final = re.compile(r"deepstack_merger_list\.(0|[1-9][0-9]{0,4})\.(?:linear_)?(norm|fc1|fc2)\.(weight|bias)")

_QWEN: Final = {
    "patch_embed.proj": "v.patch_embd",
    "pos_embed": "v.position_embd",
    "merger.norm": "v.post_ln",
    "merger.linear_fc1": "mm.0",
    "merger.linear_fc2": "mm.2",
}
_QWEN_BLOCK: Final = {
    "norm1": "ln1",
    "norm2": "ln2",
    "attn.qkv": "attn_qkv",
    "attn.proj": "attn_out",
    "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}
_GEMMA3: Final = {
    "embeddings.patch_embedding": "v.patch_embd",
    "embeddings.position_embedding": "v.position_embd",
    "post_layernorm": "v.post_ln",
}
_GEMMA3_BLOCK: Final = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}
_GEMMA3_PROJECTOR: Final = {
    "mm_input_projection_weight": "mm.input_projection.weight",
    "mm_soft_emb_norm.weight": "mm.soft_emb_norm.weight",
}
ADDED_ONE: Final = "mm.soft_emb_norm.weight"
"""Gemma's norm multiplies with one more than its weights; in GGUF the one is added."""

Keys = dict[str, object]


@dataclass(frozen=True)
class TowerFamily:
    """`whole`, `block` and `projector` name the parts, `single` tensors by their whole names; `keys` reads
    vision_config and config.json and the processor's numbers."""

    whole: Mapping[str, str]
    block: Mapping[str, str]
    projector: Mapping[str, str]
    keys: Callable[[Fields, Fields, Fields], Keys]
    single: Mapping[str, str] = field(default_factory=dict)

    def gguf_name(self, name: str, levels: list[int]) -> str | None:
        """The name in GGUF of a tensor of the tower; `None` for one that is not known."""
        if name in self.single:
            return self.single[name]
        if layer := _LAYER.fullmatch(name):
            part = self.block.get(layer[2])
            return part and f"v.blk.{layer[1]}.{part}.{layer[3]}"
        if level := _LEVEL.fullmatch(name):
            at = int(level[1])
            return f"v.deepstack.{levels[at]}.{level[2]}.{level[3]}" if at < len(levels) else None
        module, _, kind = name.rpartition(".")
        return f"{self.whole[module]}.{kind}" if module in self.whole and kind in ("weight", "bias") else None


def _qwen(vision: Fields, config: Fields, processor: Fields) -> Keys:
    depth, levels = vision.integer("depth"), _levels(vision)
    if vision.integer("temporal_patch_size", 2) != 2 or vision.integer("in_channels", 3) != 3:
        raise UnsupportedModelError(
            f"The checkpoint's vision tower looks at other patches ({vision.where}) than two frames of three colours."
        )
    _check_activation(vision)
    size = processor.fields("size") or Fields({}, processor.where)
    limits = {
        "image_min_pixels": ("min_pixels", "shortest_edge"),
        "image_max_pixels": ("max_pixels", "longest_edge"),
    }
    keys: Keys = {}
    for key, (old, new) in limits.items():
        if old in processor or new in size:
            keys[key] = processor.integer(old) if old in processor else size.integer(new)
    side = math.isqrt(max(vision.integer("num_position_embeddings"), 0))
    return keys | {
        "projector_type": "qwen3vl_merger",
        "projection_dim": vision.integer("out_hidden_size"),
        "image_size": side * vision.integer("patch_size"),
        "block_count": depth,
        "attention.head_count": vision.integer("num_heads"),
        "attention.layer_norm_epsilon": 1e-6,
        "spatial_merge_size": vision.integer("spatial_merge_size", 2),
        "is_deepstack_layers": [layer in levels for layer in range(min(max(depth, 0), MAX_LAYERS))],
    }


def _gemma3(vision: Fields, config: Fields, processor: Fields) -> Keys:
    text = config.fields("text_config")
    if text is None:
        raise ModelFileError(f"{config.where} lacks text_config: it is incomplete or damaged. Download it again.")
    _check_activation(vision)
    size, patch = vision.integer("image_size"), vision.integer("patch_size")
    tokens = math.isqrt(max(config.integer("mm_tokens_per_image", 256), 0))
    if tokens < 1 or patch < 1 or size // patch % tokens:
        raise ModelFileError(
            f"{config.where} makes {tokens} tokens of each row of {size} pixels in patches of {patch}: it is damaged. "
            "Download it again."
        )
    return {
        "projector_type": "gemma3",
        "projection_dim": text.integer("hidden_size"),
        "image_size": size,
        "block_count": vision.integer("num_hidden_layers"),
        "attention.head_count": vision.integer("num_attention_heads"),
        "attention.layer_norm_epsilon": vision.number("layer_norm_eps", 1e-6),
        "projector.scale_factor": size // patch // tokens,
    }


_QWEN_FAMILY: Final = TowerFamily(_QWEN, _QWEN_BLOCK, {}, _qwen)
TOWERS: Final[Mapping[str, TowerFamily]] = MappingProxyType(
    {
        "Gemma3ForConditionalGeneration": TowerFamily(_GEMMA3, _GEMMA3_BLOCK, _GEMMA3_PROJECTOR, _gemma3),
        "Gemma4ForConditionalGeneration": TowerFamily(
            {}, gemma4_vision.BLOCK, gemma4_vision.PROJECTOR, gemma4_vision.keys, gemma4_vision.SINGLE
        ),
        "Qwen3VLForConditionalGeneration": _QWEN_FAMILY,
        "Qwen3VLMoeForConditionalGeneration": _QWEN_FAMILY,
        "Qwen3_5ForConditionalGeneration": _QWEN_FAMILY,
        "Qwen3_5MoeForConditionalGeneration": _QWEN_FAMILY,
    }
)
"""By what `architectures` in config.json names."""


def has_tower(folder: Path) -> bool:
    """Whether a checkpoint describes a vision tower that is read. Raises ModelFileError for a damaged config.json."""
    if not os.path.isfile(folder / FILE):
        return False
    config = Fields(read_object(folder / FILE, limit=MAX_BYTES), FILE)
    return _architecture(config) in TOWERS and "vision_config" in config


def translate_tower(
    folder: Path, entries: Mapping[str, Entry], paths: tuple[Path, ...], sizes: Mapping[Path, int]
) -> TensorIndex:
    """`sizes` are as in `open_index`; vectors of a file of which only the beginning is here are ones.

    Raises ModelFileError where files contradict each other, UnsupportedModelError for an architecture, a tensor or a
    number type that is not known.
    """
    config = Fields(read_object(folder / FILE, limit=MAX_BYTES), FILE)
    architecture, vision = _architecture(config), config.fields("vision_config")
    if architecture not in TOWERS or vision is None:
        raise UnsupportedModelError(
            f"The checkpoint in {folder} has no vision tower of those that are read from safetensors: "
            f"{', '.join(sorted(TOWERS))}."
        )
    family, processor = TOWERS[architecture], _processor(folder)
    keys = family.keys(vision, config, processor)
    metadata: Keys = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.use_gelu": True,
        "clip.projector_type": keys.pop("projector_type"),
        "clip.vision.embedding_length": vision.integer("hidden_size"),
        "clip.vision.feed_forward_length": vision.integer("intermediate_size"),
        "clip.vision.patch_size": vision.integer("patch_size"),
        "clip.vision.image_mean": processor.get("image_mean"),
        "clip.vision.image_std": processor.get("image_std"),
        **{f"clip.vision.{key}": value for key, value in keys.items()},
    }
    levels = _levels(vision)
    tensors, vectors = {}, {}
    for entry in entries.values():
        name = _gguf_name(family, entry, levels)
        if name in tensors or name in vectors:
            raise ModelFileError(
                f"Tensor {quoted(entry.name)} in {entry.path.name} is there twice, under two names: the checkpoint is "
                "damaged. Download it again."
            )
        if name == ADDED_ONE:
            vectors[name] = _with_one_added(entry, here=entry.path not in sizes)
        elif name is not None:
            tensors[name] = TensorInfo(name, entry.shape or (1,), entry.dtype, entry.path, entry.offset, entry.nbytes)
    return TensorIndex(paths, metadata, tensors, vectors, sizes)


def _gguf_name(family: TowerFamily, entry: Entry, levels: list[int]) -> str | None:
    """`None` for a tensor of the text model."""
    if inside := _TOWER.fullmatch(entry.name):
        name = family.gguf_name(inside[1], levels)
    elif inside := _PROJECTOR.fullmatch(entry.name):
        name = family.projector.get(inside[1])
    else:
        return None
    where = f"Tensor {quoted(entry.name)} in {entry.path.name}"
    if name is None:
        raise UnsupportedModelError(f"{where} is not known of the checkpoint's vision tower, and would be left out.")
    if entry.dtype not in ENCODINGS:
        raise UnsupportedModelError(
            f"{where} has numbers of the type {entry.dtype}; checkpoints are read in {', '.join(ENCODINGS)}."
        )
    return name


def _with_one_added(entry: Entry, *, here: bool) -> tuple[float, ...]:
    if len(entry.shape) != 1 or entry.shape[0] > MAX_NORM:
        raise ModelFileError(
            f"Tensor {quoted(entry.name)} in {entry.path.name} has the shape {list(entry.shape)}, which is no norm's: "
            "the file is damaged. Download it again."
        )
    if not here:
        return (1.0,) * entry.shape[0]
    with opened(entry.path) as file:
        file.seek(entry.offset)
        data = np.frombuffer(file.read(entry.nbytes), np.uint8)
    values = weights.get(entry.dtype).decode(data.reshape(1, -1))[0]
    return tuple((values + np.float32(1)).tolist())


def _processor(folder: Path) -> Fields:
    """What the checkpoint's processor makes of pictures. Raises ModelFileError where no file says it."""
    found: dict[str, object] = {}
    for name in PROCESSORS:
        if os.path.isfile(folder / name):
            values = read_object(folder / name, limit=MAX_BYTES)
            inner = values.get("image_processor")
            found |= values | (inner if isinstance(inner, dict) else {})
    if "image_mean" not in found:
        raise ModelFileError(
            f"{folder} has no {PROCESSORS[0]} that says how pictures are prepared (image_mean). Download it as well."
        )
    return Fields(found, PROCESSORS[0])


def _architecture(config: Fields) -> str:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def _levels(vision: Fields) -> list[int]:
    """The layers that DeepStack takes features from, in the order of their mergers."""
    levels = vision.get("deepstack_visual_indexes")
    if levels is None:
        return []
    if (
        not isinstance(levels, list)
        or len(levels) > MAX_LAYERS
        or not all(type(level) is int for level in levels)
        or len(set(levels)) < len(levels)
    ):
        raise ModelFileError(
            f"deepstack_visual_indexes in {vision.where} must be a list of layers, each once: it is damaged. "
            "Download it again."
        )
    return levels


def _check_activation(vision: Fields) -> None:
    activation = vision.text("hidden_act", GELU)
    if activation != GELU:
        raise UnsupportedModelError(
            f"The checkpoint's vision tower uses {quoted(activation)} (hidden_act), where {GELU} is known."
        )
