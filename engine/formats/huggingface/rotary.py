"""How config.json describes rotary positions → the keys and vectors of GGUF.

Current files keep it in `rope_parameters`, older ones in `rope_scaling` and `rope_theta` (Transformers,
`modeling_rope_utils`). Llama 3's scaling becomes a divisor for each frequency, as llama.cpp's converter writes them.
"""

from __future__ import annotations

import math

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.fields import Fields

KINDS = ("default", "linear", "llama3", "yarn")
MAX_HEAD_DIM = 1 << 12
MAX_FACTOR = 1e6

_YARN = {
    "attention_factor": "rope.scaling.yarn_attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}


def rotary(fields: Fields, head_dim: int) -> tuple[dict[str, object], dict[str, tuple[float, ...]]]:
    """Keys without the architecture's prefix, and vectors. Raises UnsupportedModelError for a kind not known."""
    rope = fields.fields("rope_parameters") or fields.fields("rope_scaling") or Fields({}, fields.where)
    theta = rope.number("rope_theta", fields.number("rope_theta", 10000.0))
    keys: dict[str, object] = {"rope.freq_base": theta}
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in KINDS:
        raise UnsupportedModelError(
            f"The checkpoint's rotary scaling {quoted(kind)} is not one of those known: {', '.join(KINDS)}."
        )
    if kind in ("linear", "yarn"):
        keys["rope.scaling.type"] = kind
        keys["rope.scaling.factor"] = rope.number("factor")
    if kind == "yarn":
        _refuse_other_yarn(rope)
        if "original_max_position_embeddings" in rope:
            keys["rope.scaling.original_context_length"] = rope.integer("original_max_position_embeddings")
        keys |= {_YARN[key]: rope.number(key) for key in _YARN if key in rope}
    return keys, {"rope_freqs.weight": _llama3_divisors(rope, theta, head_dim)} if kind == "llama3" else {}


def _refuse_other_yarn(rope: Fields) -> None:
    for key in ("mscale", "mscale_all_dim"):
        if key in rope:
            raise UnsupportedModelError(f"The checkpoint's {key} in {rope.where} is not run by this engine yet.")
    if not rope.flag("truncate", True):
        raise UnsupportedModelError(f"The checkpoint's {rope.where} does not truncate, which this engine always does.")


def _llama3_divisors(rope: Fields, theta: float, dims: int) -> tuple[float, ...]:
    """What each frequency is divided by: 1 for short waves, `factor` for long ones, a blend between."""
    if not 2 <= dims <= MAX_HEAD_DIM or theta <= 1:
        raise ModelFileError(
            f"{rope.where} turns heads of {dims} elements by a base of {theta}: it is damaged. Download it again."
        )
    factor = rope.number("factor", low=1.0, high=MAX_FACTOR)
    low = rope.number("low_freq_factor", low=1e-6, high=MAX_FACTOR)
    high = rope.number("high_freq_factor", low=1e-6, high=MAX_FACTOR)
    original = rope.number("original_max_position_embeddings", low=1.0)
    if high <= low:
        raise ModelFileError(
            f"{rope.where} has a high_freq_factor that is not above its low_freq_factor: it is damaged. "
            "Download it again."
        )

    def divisor(pair: int) -> float:
        turns = original / (2 * math.pi * math.pow(theta, 2 * pair / dims))
        if turns > high:
            return 1.0
        if turns < low:
            return factor
        smooth = (turns - low) / (high - low)
        return 1 / ((1 - smooth) / factor + smooth)

    return tuple(divisor(pair) for pair in range(dims // 2))
