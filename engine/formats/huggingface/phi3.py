"""What config.json says of a Phi-3 or Phi-4 beside what every family has → keys and vectors of GGUF.

Keys are those of llama.cpp's converter (`Phi3MiniModel`), numbers those of Transformers (`modeling_rope_utils`).
"""

from __future__ import annotations

import math
from typing import Final

from engine.errors import ModelFileError
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.rotary import MAX_FACTOR, MAX_HEAD_DIM, rotary

DEFAULTS: Final = {"original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5}


def phi3(fields: Fields, head_dim: int) -> tuple[dict[str, object], dict[str, tuple[float, ...]]]:
    rope = fields.fields("rope_parameters") or fields.fields("rope_scaling") or Fields({}, fields.where)
    part = rope.number("partial_rotary_factor", fields.number("partial_rotary_factor", 1.0, high=1.0), high=1.0)
    own = {
        "rope.dimension_count": int(head_dim * part),
        "attention.sliding_window": fields.integer("sliding_window", 0),
    }
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ("longrope", "su"):  # its first name
        keys, vectors = rotary(fields, head_dim)
        return keys | own, vectors
    original = rope.integer("original_max_position_embeddings", fields.integer("original_max_position_embeddings"))
    if original < 2:
        raise ModelFileError(f"{rope.where} was trained on {original} positions: it is damaged. Download it again.")
    stretch = rope.number("factor", fields.integer("max_position_embeddings") / original)
    amplitude = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    keys = {
        "rope.freq_base": rope.number("rope_theta", fields.number("rope_theta", 10000.0)),
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": rope.number("attention_factor", amplitude),
    }
    vectors = {f"rope_factors_{length}.weight": _divisors(rope, f"{length}_factor") for length in ("long", "short")}
    return keys | own, vectors


def _divisors(rope: Fields, key: str) -> tuple[float, ...]:
    values = rope.get(key)
    if not isinstance(values, list) or len(values) > MAX_HEAD_DIM:
        raise ModelFileError(f"{rope.where} has no list {key}: it is damaged. Download it again.")
    numbers = (Fields({key: value}, rope.where).number(key, low=1e-6, high=MAX_FACTOR) for value in values)
    return tuple(numbers)
