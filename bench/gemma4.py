"""Gemma 4 between its file and Transformers: names, and the configuration that the keys of a file tell.

Names are those of the `gguf` package, keys those of llama.cpp's converter (`Gemma4Model.set_gguf_parameters`). The
converter changes no values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from transformers import Gemma4TextConfig, PreTrainedModel

from engine.formats.index import TensorIndex

MODULES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
EXPERTS = {
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "layer_scalar": "layer_output_scale.weight",
}
"""What has no module of its own, or no ending."""
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYERS, SCALAR = "model.layers.", "layer_scalar"


def gguf_name(name: str) -> str:
    """A parameter's name in Transformers, or a buffer's → the tensor's name in a file."""
    if not name.startswith(LAYERS):
        return WHOLE[name]
    layer, _, rest = name.removeprefix(LAYERS).partition(".")
    if rest in EXPERTS:
        return f"blk.{layer}.{EXPERTS[rest]}"
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{MODULES[module]}.{kind}"


def stored(model: PreTrainedModel) -> dict[str, Any]:
    """Parameters, and the buffers that are saved with them, by name."""
    scalars = {name: values for name, values in model.named_buffers() if name.endswith(SCALAR)}
    return dict(model.named_parameters()) | scalars


def per_layer(config: Gemma4TextConfig, what: str) -> list[int]:
    """A number of each layer, such as "head_dim"."""
    return [getattr(config.per_layer_config[index], what) for index in range(config.num_hidden_layers)]


def configuration(index: TensorIndex) -> dict[str, Any]:
    meta: dict[str, Any] = {key.removeprefix("gemma4."): value for key, value in index.metadata.items()}
    layers, local = meta["block_count"], meta["attention.sliding_window_pattern"]
    kv_heads, widths = (
        value if isinstance(value, list) else [value] * layers
        for value in (meta["attention.head_count_kv"], meta["feed_forward_length"])
    )
    far = local.index(False)
    dim, turned = meta["attention.key_length"], index_of_the_first_still_pair(index)
    return {
        "vocab_size": index.tensors["token_embd.weight"].shape[0],
        "vocab_size_per_layer_input": index.tensors["token_embd.weight"].shape[0],
        "hidden_size": meta["embedding_length"],
        "intermediate_size": widths[0],
        "use_double_wide_mlp": widths[-1] != widths[0],
        "num_hidden_layers": layers,
        "num_attention_heads": meta["attention.head_count"],
        "num_key_value_heads": kv_heads[local.index(True)] if any(local) else kv_heads[far],
        "num_global_key_value_heads": kv_heads[far],
        "head_dim": meta["attention.key_length_swa"],
        "global_head_dim": dim,
        "max_position_embeddings": meta["context_length"],
        "rms_norm_eps": meta["attention.layer_norm_rms_epsilon"],
        "layer_types": ["sliding_attention" if near else "full_attention" for near in local],
        "sliding_window": meta["attention.sliding_window"],
        "num_kv_shared_layers": meta["attention.shared_kv_layers"],
        "attention_k_eq_v": f"blk.{far}.attn_v.weight" not in index.tensors,
        "hidden_size_per_layer_input": meta["embedding_length_per_layer_input"],
        "final_logit_softcapping": meta.get("final_logit_softcapping"),
        "tie_word_embeddings": "output.weight" not in index.tensors,
        "enable_moe_block": "expert_count" in meta,
        "num_experts": meta.get("expert_count"),
        "top_k_experts": meta.get("expert_used_count"),
        "moe_intermediate_size": meta.get("expert_feed_forward_length"),
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": meta["rope.freq_base_swa"]},
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": meta["rope.freq_base"],
                "partial_rotary_factor": 2 * turned / dim,
            },
        },
    }


def index_of_the_first_still_pair(index: TensorIndex) -> int:
    """Pairs of a head that turn: the divisors of all others are beyond any frequency."""
    info = index.tensors["rope_freqs.weight"]
    divisors = np.fromfile(info.path, np.float32, info.shape[0], offset=info.offset)
    return int((divisors < 1e20).sum())
