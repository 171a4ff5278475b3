"""What config.json says of a Gemma beside what every family has → keys and vectors of GGUF.

Keys are those of llama.cpp's converter (`conversion/gemma.py`), defaults those of Transformers' configurations, on
which published files rely. Variants that the architectures of GGUF cannot tell are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.rotary import MAX_HEAD_DIM, rotary

Keys = dict[str, object]
Vectors = dict[str, tuple[float, ...]]

DEFAULTS: Final = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
}
GEMMA2: Final = DEFAULTS | {
    "vocab_size": 256000,
    "num_hidden_layers": 26,
    "max_position_embeddings": 8192,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
GEMMA3: Final = DEFAULTS | {
    "vocab_size": 262208,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131072,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
}
GEMMA4: Final = DEFAULTS | {
    "vocab_size": 262144,
    "num_hidden_layers": 30,
    "max_position_embeddings": 131072,
    "sliding_window": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262144,
    "global_head_dim": 512,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    },
}

MAX_LAYERS: Final = 1 << 12
LOCAL, GLOBAL = "sliding_attention", "full_attention"
STILL: Final = 1e30
"""What the converter divides a frequency by that is to turn nothing."""


def gemma2(fields: Fields, head_dim: int) -> tuple[Keys, Vectors]:
    _refuse_variants(fields, lambda index: (index + 1) % 2 > 0)
    _refuse_other_scale(fields, head_dim, largest=46)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if key not in fields:
            raise UnsupportedModelError(f"The checkpoint has no {key}, without which this engine runs no Gemma 2.")
    keys, vectors = rotary(fields, head_dim)
    return keys | _window(fields) | _caps(fields), vectors


def gemma3(fields: Fields, head_dim: int) -> tuple[Keys, Vectors]:
    _refuse_variants(fields, lambda index: (index + 1) % 6 > 0)
    _refuse_other_scale(fields, head_dim, largest=62)
    if "attn_logit_softcapping" in fields:
        raise UnsupportedModelError("The checkpoint caps its attention scores (attn_logit_softcapping), as no Gemma 3.")
    near, far = _ropes(fields)
    keys, vectors = rotary(far or fields, head_dim)
    local = near.number("rope_theta", 1e4) if near else fields.number("rope_local_base_freq")
    return keys | _window(fields) | _caps(fields) | {"rope.freq_base_swa": local}, vectors


def gemma4(fields: Fields, head_dim: int) -> tuple[Keys, Vectors]:
    layers = _layers(fields)
    local = _local(fields, lambda index: (index + 1) % 6 > 0 and index + 1 < layers)
    _refuse_activation(fields)
    if fields.get("use_bidirectional_attention") not in (None, "vision"):
        raise UnsupportedModelError("The checkpoint looks ahead (use_bidirectional_attention), which is not run here.")
    width = fields.integer("hidden_size_per_layer_input") if "hidden_size_per_layer_input" in fields else 0
    if width and fields.integer("vocab_size_per_layer_input") != fields.integer("vocab_size"):
        raise UnsupportedModelError(
            "The checkpoint's layers have inputs for other tokens (vocab_size_per_layer_input) than its vocabulary."
        )
    dims, kv_heads = _by_layer(fields, local)
    near_dim, far_dim = (_one(dims, local, kind) or head_dim for kind in (True, False))
    borrowing = fields.integer("num_kv_shared_layers", 0)
    wide = fields.integer("intermediate_size")
    keys: Keys = {
        "attention.head_count_kv": kv_heads,
        "attention.key_length": far_dim,
        "attention.value_length": far_dim,
        "attention.key_length_swa": near_dim,
        "attention.value_length_swa": near_dim,
        "attention.sliding_window_pattern": local,
        "attention.shared_kv_layers": borrowing,
        "embedding_length_per_layer_input": width,
        "rope.dimension_count": far_dim,
        "rope.dimension_count_swa": near_dim,
    }
    if fields.flag("use_double_wide_mlp", False):
        keys["feed_forward_length"] = [wide * (2 if index >= layers - borrowing else 1) for index in range(layers)]
    if fields.flag("enable_moe_block", False):
        keys["expert_count"] = fields.integer("num_experts")
        keys["expert_used_count"] = fields.integer("top_k_experts")
        keys["expert_feed_forward_length"] = fields.integer("moe_intermediate_size")
    near, far = _ropes(fields)
    if near is None or far is None:
        raise ModelFileError(f"rope_parameters in {fields.where} lack a kind of layer: it is damaged.")
    if near.text("rope_type", "default") != "default":
        raise UnsupportedModelError("The checkpoint scales the rotary positions of its local layers, as no Gemma 4.")
    keys["rope.freq_base"] = far.number("rope_theta", 1e6)
    keys["rope.freq_base_swa"] = near.number("rope_theta", 1e4)
    return keys | _window(fields) | _caps(fields), {"rope_freqs.weight": _proportional(far, far_dim)}


def _proportional(rope: Fields, dim: int) -> tuple[float, ...]:
    """Divisors of the frequencies of a head of which only the first pairs turn (Transformers, `proportional`)."""
    if not 2 <= dim <= MAX_HEAD_DIM:
        raise ModelFileError(f"{rope.where} turns heads of {dim} elements: it is damaged. Download it again.")
    kind = rope.text("rope_type", "default")
    if kind not in ("default", "proportional"):
        raise UnsupportedModelError(
            f"The checkpoint's rotary scaling {quoted(kind)} is not one of those known: default, proportional."
        )
    part = rope.number("partial_rotary_factor", 1.0, high=1.0) if kind == "proportional" else 1.0
    factor = rope.number("factor", 1.0, low=1.0, high=1e6) if kind == "proportional" else 1.0
    turning = int(part * dim // 2)
    return (factor,) * turning + (STILL,) * (dim // 2 - turning)


def _ropes(fields: Fields) -> tuple[Fields | None, Fields | None]:
    """How local and global layers turn, where the file tells it of each; older files tell it of all together."""
    rope = fields.fields("rope_parameters") or Fields({}, fields.where)
    near, far = rope.fields(LOCAL), rope.fields(GLOBAL)
    return near, None if far is None else Fields({**far.values, "rope_parameters": far.values}, far.where)


def _by_layer(fields: Fields, local: list[bool]) -> tuple[list[int], list[int]]:
    """Width of a head and count of key heads, layer by layer."""
    dims = [fields.integer("head_dim")] * len(local)
    heads = [fields.integer("num_key_value_heads")] * len(local)
    exceptions = fields.fields("per_layer_config")
    if exceptions is None:
        own_heads = fields.flag("attention_k_eq_v", False) and "num_global_key_value_heads" in fields
        far_heads = fields.integer("num_global_key_value_heads") if own_heads else heads[0]
        dims = [dim if near else fields.integer("global_head_dim") for dim, near in zip(dims, local, strict=True)]
        heads = [count if near else far_heads for count, near in zip(heads, local, strict=True)]
        return dims, heads
    for index in range(len(local)):
        layer = exceptions.fields(str(index))
        if layer is None:
            continue
        unknown = sorted(layer.values.keys() - {"head_dim", "num_key_value_heads"})
        if unknown:
            raise UnsupportedModelError(f"The checkpoint gives layer {index} a {quoted(unknown[0])} of its own.")
        dims[index] = layer.integer("head_dim", dims[index])
        heads[index] = layer.integer("num_key_value_heads", heads[index])
    return dims, heads


def _one(dims: list[int], local: list[bool], kind: bool) -> int | None:
    """The width that layers of one kind have; `None` where there are none."""
    widths = {dim for dim, near in zip(dims, local, strict=True) if near == kind}
    if len(widths) > 1:
        raise UnsupportedModelError("The checkpoint's heads differ in width among layers that see as far.")
    return widths.pop() if widths else None


def _layers(fields: Fields) -> int:
    layers = fields.integer("num_hidden_layers")
    if not 1 <= layers <= MAX_LAYERS:
        raise ModelFileError(f"num_hidden_layers in {fields.where} is {layers}: it is damaged. Download it again.")
    return layers


def _local(fields: Fields, default: Callable[[int], bool]) -> list[bool]:
    """For each layer whether it sees a window only."""
    layers = _layers(fields)
    kinds = fields.get("layer_types")
    if kinds is None:
        return [default(index) for index in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in (LOCAL, GLOBAL) for kind in kinds):
        raise ModelFileError(
            f"layer_types in {fields.where} are not {layers} of {LOCAL} and {GLOBAL}: it is damaged. Download it again."
        )
    return [kind == LOCAL for kind in kinds]


def _refuse_activation(fields: Fields) -> None:
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise UnsupportedModelError(
            f"The checkpoint's feed-forward layers use {quoted(activation)} (hidden_activation), where "
            "gelu_pytorch_tanh is known."
        )


def _refuse_variants(fields: Fields, local: Callable[[int], bool]) -> None:
    _refuse_activation(fields)
    if fields.get("use_bidirectional_attention") not in (None, False):
        raise UnsupportedModelError("The checkpoint looks ahead (use_bidirectional_attention), which is not run here.")
    period = next(index for index in range(MAX_LAYERS) if not local(index)) + 1
    other = fields.integer("sliding_window_pattern", period) != period and "layer_types" not in fields
    if other or _local(fields, local) != [local(index) for index in range(_layers(fields))]:
        raise UnsupportedModelError(
            "The checkpoint's layers take turns in seeing far and near (layer_types, sliding_window_pattern) in "
            "another way than this engine runs."
        )


def _refuse_other_scale(fields: Fields, head_dim: int, *, largest: int) -> None:
    """No key of GGUF tells it: llama.cpp knows the largest model by its layers."""
    heads = fields.integer("num_attention_heads")
    known = fields.integer("hidden_size") // heads if _layers(fields) == largest and heads > 0 else head_dim
    if fields.number("query_pre_attn_scalar") != known:
        raise UnsupportedModelError(
            f"The checkpoint's query_pre_attn_scalar is {fields.get('query_pre_attn_scalar')}; this engine runs "
            f"{known}."
        )


def _window(fields: Fields) -> Keys:
    return {"attention.sliding_window": fields.integer("sliding_window")}


def _caps(fields: Fields) -> Keys:
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    return {key: fields.number(key) for key in caps if key in fields}
