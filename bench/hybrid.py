"""Qwen3.5 as Transformers has it and as GGUF has it (llama.cpp's converter: `Qwen3NextModel.modify_tensors`,
`_LinearAttentionVReorderBase.modify_tensors`)."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedConfig

HYBRID = ("qwen35", "qwen35moe")
NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PARAMETERS = {
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    # The converter leaves gates and what they gate together where it is asked to.
    "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
}
"""Those that are called neither weight nor bias."""


def to_gguf(name: str, values: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """A parameter's values as the converter stores them.

    Norms multiply with one more than their weights, save the gated one. Value heads that share a key head lie together
    in Transformers; in a file the first of every key head come first, then the second ones.
    """
    if name.endswith("A_log"):
        values = (-np.exp(values.astype(np.float64))).astype(np.float32)
    elif name.endswith("norm.weight") and "linear_attn" not in name:
        values = values + np.float32(1)
    return _reordered(name, values.squeeze() if "conv1d" in name else values, config, into_file=True)


def to_transformers(name: str, values: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """The inverse of `to_gguf`."""
    values = _reordered(name, values, config, into_file=False)
    if name.endswith("A_log"):
        return np.log(-values)
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return values - np.float32(1)
    return values[:, None] if "conv1d" in name else values


def configuration(meta: dict[str, object]) -> dict[str, object]:
    """What `Qwen3_5TextConfig` has beside what all have, of a file's keys without their prefix."""
    layers = int(meta["block_count"]) - int(meta.get("nextn_predict_layers", 0))
    period = int(meta.get("full_attention_interval", 4))
    recurrent = meta.get("attention.recurrent_layers") or [(index + 1) % period > 0 for index in range(layers)]
    mixture = {
        "num_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    }
    return {name: meta[key] for name, key in mixture.items() if key in meta} | {
        "num_hidden_layers": layers,
        "layer_types": ["linear_attention" if flag else "full_attention" for flag in recurrent[:layers]],
        "linear_conv_kernel_dim": meta["ssm.conv_kernel"],
        "linear_key_head_dim": meta["ssm.state_size"],
        "linear_num_key_heads": meta["ssm.group_count"],
        "linear_num_value_heads": meta["ssm.time_step_rank"],
        "linear_value_head_dim": int(meta["ssm.inner_size"]) // int(meta["ssm.time_step_rank"]),
    }


def _reordered(name: str, values: np.ndarray, config: PreTrainedConfig, *, into_file: bool) -> np.ndarray:
    key_heads, heads = config.linear_num_key_heads, config.linear_num_value_heads
    keys = 2 * key_heads * config.linear_key_head_dim
    fixed, axis = 0, 0
    if "in_proj_qkv" in name or "conv1d" in name:
        fixed = keys
    elif "out_proj" in name:
        axis = 1
    elif not any(part in name for part in ("in_proj_z", "in_proj_a", "in_proj_b", "A_log", "dt_bias")):
        return values
    order = np.arange(heads).reshape(key_heads, -1)
    order = order.T.ravel() if into_file else np.arange(heads).reshape(-1, key_heads).T.ravel()
    width = (values.shape[axis] - fixed) // heads
    whole = np.concatenate([np.arange(fixed), (fixed + order[:, None] * width + np.arange(width)).ravel()])
    return values.take(whole, axis=axis)
