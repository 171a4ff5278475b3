"""Models as Transformers has them and as GGUF has them: the same parameters under other names, some in other orders.

The names are those of the `gguf` package, the orders those of the converter of llama.cpp, which writes with it
(`conversion/`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from engine import weights
from engine.formats.index import TensorIndex

CLASSES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
"""By the architecture that a file names, which is also Transformers' `model_type`."""
REORDERED = ("llama",)
"""Architectures whose queries and keys the converter reorders."""
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
LAYERS = "model.layers."


def gguf_name(name: str) -> str:
    """A parameter's name in Transformers → the tensor's name in a file."""
    if not name.startswith(LAYERS):
        return NAMES[name]
    layer, _, rest = name.removeprefix(LAYERS).partition(".")
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{NAMES[module]}.{kind}"


def reordered_heads(name: str, config: PreTrainedConfig) -> int:
    """Heads among the rows of a parameter that the converter reorders; 0 for all others."""
    if config.model_type not in REORDERED:
        return 0
    if ".q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".k_proj." in name else 0


def to_gguf_rows(values: np.ndarray, heads: int) -> np.ndarray:
    """From Transformers, where row i of a head turns with row i + d/2, to a file, where 2i turns with 2i + 1.

    The converter does this in `LlamaModel.permute`, to weights [rows, columns] and biases [rows] alike.
    """
    return _reorder(values, heads, lambda dim: np.arange(dim).reshape(2, dim // 2).T.ravel())


def to_transformers_rows(values: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of `to_gguf_rows`."""
    return _reorder(values, heads, lambda dim: np.arange(dim).reshape(dim // 2, 2).T.ravel())


def _reorder(values: np.ndarray, heads: int, order: Any) -> np.ndarray:
    if heads == 0:
        return values
    dim = len(values) // heads
    return values.reshape(heads, dim, -1)[:, order(dim)].reshape(values.shape)


def transformers_model(index: TensorIndex) -> PreTrainedModel:
    """The float32 model of a file, over its decoded weights."""
    meta: dict[str, Any] = dict(index.metadata)
    architecture = meta["general.architecture"]
    if meta.get(f"{architecture}.rope.scaling.type", "none") != "none":
        raise SystemExit("The file scales its rotary positions, which this comparison does not do.")
    make_config, make_model = CLASSES[architecture]
    hidden_size, n_heads = meta[f"{architecture}.embedding_length"], meta[f"{architecture}.attention.head_count"]
    config = make_config(
        vocab_size=index.tensors["token_embd.weight"].shape[0],
        hidden_size=hidden_size,
        intermediate_size=meta[f"{architecture}.feed_forward_length"],
        num_hidden_layers=meta[f"{architecture}.block_count"],
        num_attention_heads=n_heads,
        num_key_value_heads=meta.get(f"{architecture}.attention.head_count_kv", n_heads),
        head_dim=meta.get(f"{architecture}.attention.key_length", hidden_size // n_heads),
        max_position_embeddings=meta[f"{architecture}.context_length"],
        rms_norm_eps=meta[f"{architecture}.attention.layer_norm_rms_epsilon"],
        rope_parameters={
            "rope_type": "default",
            "rope_theta": meta.get(f"{architecture}.rope.freq_base", 10000.0),
        },
        attention_bias="blk.0.attn_q.bias" in index.tensors,
        tie_word_embeddings="output.weight" not in index.tensors,
    )
    model = make_model(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            stored = decode(index, gguf_name(name)).reshape(values.shape)
            values.copy_(torch.tensor(to_transformers_rows(stored, reordered_heads(name, config))))
        if "rope_freqs.weight" in index.tensors:
            model.model.rotary_emb.inv_freq /= torch.tensor(decode(index, "rope_freqs.weight")[0])
    return model


def decode(index: TensorIndex, name: str) -> np.ndarray:
    """A tensor's decoded values, float32 [rows, columns]."""
    info = index.tensors[name]
    data = np.fromfile(info.path, np.uint8, info.nbytes, offset=info.offset)
    rows = 1 if len(info.shape) == 1 else info.shape[0]
    return weights.get(info.encoding).decode(data.reshape(rows, -1))
