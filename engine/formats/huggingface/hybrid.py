"""Qwen3.5 as it is published → as GGUF has it, which llama.cpp's converter writes (`Qwen3NextModel`,
`_LinearAttentionVReorderBase`).

Published norms multiply with one more than their weights, decay rates are kept as logarithms, and value heads that
share a key head lie together; in GGUF the first of every key head come first, then the second ones.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.rotary import rotary
from engine.formats.index import Run, TensorInfo

MODULES: Final = MappingProxyType(
    {
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
    }
)
PARAMETERS: Final = MappingProxyType({"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"})
DEFAULTS: Final = MappingProxyType({"head_dim": 256})
RECURRENT: Final = MappingProxyType({"linear_attention": True, "full_attention": False})
"""Kinds of layers."""
MAX_HEADS: Final = 1 << 12
MAX_DIM: Final = 1 << 16
MAX_LAYERS: Final = 1 << 12
PARTIAL: Final = 0.25
"""The part of each head that turns unless config.json says otherwise (Transformers, `Qwen3_5TextConfig`)."""
SECTIONS: Final = (11, 11, 10)
"""Pairs that turn by time, height and width, as the converter writes them where config.json does not."""


def own_keys(fields: Fields, head_dim: int) -> tuple[dict[str, object], dict[str, tuple[float, ...]]]:
    """The keys of the recurrent layers and of rotary positions, without the architecture's prefix, and vectors."""
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(
            f"The checkpoint's feed-forward layers use {quoted(activation)} (hidden_act), where silu is known."
        )
    keys, vectors = rotary(fields, head_dim)
    key_heads, heads, key_dim, value_dim = _heads(fields)
    rope = fields.fields("rope_parameters") or Fields({}, fields.where)
    part = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", PARTIAL), high=1.0)
    sections = rope.get("mrope_section") or list(SECTIONS)
    if not isinstance(sections, list) or not all(isinstance(count, int) for count in sections):
        raise ModelFileError(f"mrope_section in {rope.where} is no list of counts: it is damaged. Download it again.")
    return keys | {
        "ssm.conv_kernel": fields.integer("linear_conv_kernel_dim"),
        "ssm.state_size": key_dim,
        "ssm.group_count": key_heads,
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * value_dim,
        "attention.recurrent_layers": _recurrent(fields),
        "rope.dimension_count": int(head_dim * part),
        "rope.dimension_sections": [*sections, 0, 0, 0, 0][:4],
    }, vectors


def arranged(info: TensorInfo, fields: Fields) -> TensorInfo:
    """The tensor, under its name in GGUF, with its heads in their order and its values as a file would have them.

    Raises ModelFileError where its shape has no room for the heads that config.json counts.
    """
    key_heads, heads, key_dim, value_dim = _heads(fields)
    name = info.name.split(".", 2)[-1]
    if name == "ssm_norm.weight":
        return replace(info, shift=0.0)
    if name == "ssm_conv1d.weight" and len(info.shape) == 3 and info.shape[1] == 1:
        info = replace(info, shape=(info.shape[0], info.shape[2]))
    if name == "ssm_a":
        info = replace(info, logarithms=True)
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        return replace(info, runs=_runs(info, 0, 2 * key_heads * key_dim, key_heads, heads, value_dim))
    if name == "attn_gate.weight":
        return replace(info, runs=_runs(info, 0, 0, key_heads, heads, value_dim))
    if name in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_a", "ssm_dt.bias"):
        return replace(info, runs=_runs(info, 0, 0, key_heads, heads, 1))
    if name == "ssm_out.weight":
        return replace(info, column_runs=_runs(info, 1, 0, key_heads, heads, value_dim))
    return info


def _runs(info: TensorInfo, axis: int, before: int, key_heads: int, heads: int, width: int) -> tuple[Run, ...]:
    """Where value heads of so many rows or columns each lie, `before` others standing before them."""
    extent = info.shape[axis] if axis < len(info.shape) else 0
    if extent != before + heads * width:
        raise ModelFileError(
            f"Tensor {quoted(info.name)} in {info.path.name} has the shape {list(info.shape)}, which has no room for "
            f"{heads} value heads of {width}: it does not belong to this config.json. Download both again."
        )
    shared = heads // key_heads
    if shared == 1 or key_heads == 1:
        return ()
    order = (key_head * shared + at for at in range(shared) for key_head in range(key_heads))
    starts = (before + head * width for head in order)
    return (*([(0, before)] if before else []), *((start, start + width) for start in starts))


def _heads(fields: Fields) -> tuple[int, int, int, int]:
    """Key heads, value heads, and their widths."""
    counts = []
    for key, most in (
        ("linear_num_key_heads", MAX_HEADS),
        ("linear_num_value_heads", MAX_HEADS),
        ("linear_key_head_dim", MAX_DIM),
        ("linear_value_head_dim", MAX_DIM),
    ):
        count = fields.integer(key)
        if not 1 <= count <= most:
            raise ModelFileError(f"{key} in {fields.where} is {count}: it is damaged. Download it again.")
        counts.append(count)
    key_heads, heads, key_dim, value_dim = counts
    if heads % key_heads:
        raise ModelFileError(
            f"linear_num_value_heads in {fields.where} is {heads}, which {key_heads} key heads cannot share: it is "
            "damaged. Download it again."
        )
    return key_heads, heads, key_dim, value_dim


def _recurrent(fields: Fields) -> list[bool]:
    """For each layer whether it is recurrent."""
    layers = fields.integer("num_hidden_layers")
    if not 1 <= layers <= MAX_LAYERS:
        raise ModelFileError(f"num_hidden_layers in {fields.where} is {layers}: it is damaged. Download it again.")
    kinds = fields.get("layer_types")
    if kinds is None:
        period = max(fields.integer("full_attention_interval", 4), 1)
        return [(index + 1) % period > 0 for index in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise ModelFileError(f"layer_types in {fields.where} names no kind for each of {layers} layers: it is damaged.")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in RECURRENT:
            raise UnsupportedModelError(
                f"The checkpoint has layers of the kind {quoted(str(kind))} (layer_types), which is not one of those "
                f"known: {', '.join(RECURRENT)}."
            )
    return [RECURRENT[kind] for kind in kinds]
