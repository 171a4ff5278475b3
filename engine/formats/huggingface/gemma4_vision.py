"""Gemma 4's vision tower in a checkpoint → names and keys of GGUF (llama.cpp's `Gemma4VisionAudioModel`).

Names on the left are those of Transformers' `Gemma4VisionModel`. Its patches hold the colours of a pixel together,
where those of a GGUF file hold a colour of all pixels together.
"""

from __future__ import annotations

import reprlib
from types import MappingProxyType
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.huggingface.fields import Fields

THETA: Final = 100.0
SOFT_TOKENS: Final = 280
GELU: Final = "gelu_pytorch_tanh"

_CLIPPED: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""What has bounds beside the linear layer within."""
BLOCK: Final = MappingProxyType(
    _CLIPPED
    | {f"{name}.linear": part for name, part in _CLIPPED.items()}
    | {
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "input_layernorm": "ln1",
        "post_attention_layernorm": "attn_post_norm",
        "pre_feedforward_layernorm": "ln2",
        "post_feedforward_layernorm": "ffn_post_norm",
    }
)
SINGLE: Final = MappingProxyType(
    {
        "patch_embedder.input_proj.weight": "v.patch_embd.weight",
        "patch_embedder.position_embedding_table": "v.position_embd.weight",
        "std_bias": "v.std_bias",
        "std_scale": "v.std_scale",
    }
)
PROJECTOR: Final = MappingProxyType({"embedding_projection.weight": "mm.input_projection.weight"})


def keys(vision: Fields, config: Fields, processor: Fields) -> dict[str, object]:
    """Raises UnsupportedModelError for a variant that a GGUF file could not tell either."""
    text = config.fields("text_config")
    if text is None:
        raise ModelFileError(f"{config.where} lacks text_config: it is incomplete or damaged. Download it again.")
    heads, rope = vision.integer("num_attention_heads"), vision.fields("rope_parameters") or Fields({}, vision.where)
    inputs = text.integer("hidden_size_per_layer_input", 0) if "hidden_size_per_layer_input" in text else 0
    for key, own, known in (
        ("hidden_activation", vision.text("hidden_activation", GELU), GELU),
        ("num_key_value_heads", vision.integer("num_key_value_heads", heads), heads),
        ("rope_theta", rope.number("rope_theta", THETA), THETA),
        ("max_soft_tokens", processor.integer("max_soft_tokens", SOFT_TOKENS), SOFT_TOKENS),
        ("use_bidirectional_attention", text.get("use_bidirectional_attention"), None if inputs else "vision"),
    ):
        if own != known:
            raise UnsupportedModelError(
                f"The checkpoint looks at pictures with {key} {reprlib.repr(own)}, where this engine knows only "
                f"{known!r}."
            )
    return {
        "projector_type": "gemma4v",
        "projection_dim": text.integer("hidden_size"),
        "image_size": 224,  # of no meaning: pictures keep their shape
        "block_count": vision.integer("num_hidden_layers"),
        "attention.head_count": heads,
        "attention.head_dim": vision.integer("head_dim"),
        "attention.layer_norm_epsilon": vision.number("rms_norm_eps", 1e-6),
        "projector.scale_factor": vision.integer("pooling_kernel_size", 3),
        "channels_last": True,
    }
