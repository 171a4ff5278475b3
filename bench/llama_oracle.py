"""Llama as Transformers has it and as GGUF has it: the same parameters under other names and in another row order.

The order and the names are those of llama.cpp's converter (`conversion/llama.py`, class LlamaModel) and of the `gguf`
package that it writes with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine import weights
from engine.formats.index import TensorIndex

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
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


def rotary_heads(name: str, config: LlamaConfig) -> int:
    """Heads among the rows of a parameter whose outputs are turned by rotary positions; 0 for all others."""
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


def transformers_llama(index: TensorIndex) -> LlamaForCausalLM:
    """The float32 model of a file, over its decoded weights."""
    meta: dict[str, Any] = dict(index.metadata)
    config = LlamaConfig(
        vocab_size=index.tensors["token_embd.weight"].shape[0],
        hidden_size=meta["llama.embedding_length"],
        intermediate_size=meta["llama.feed_forward_length"],
        num_hidden_layers=meta["llama.block_count"],
        num_attention_heads=meta["llama.attention.head_count"],
        num_key_value_heads=meta["llama.attention.head_count_kv"],
        max_position_embeddings=meta["llama.context_length"],
        rms_norm_eps=meta["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": meta["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in index.tensors,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            stored = decode(index, gguf_name(name)).reshape(values.shape)
            values.copy_(torch.tensor(to_transformers_rows(stored, rotary_heads(name, config))))
        if "rope_freqs.weight" in index.tensors:
            model.model.rotary_emb.inv_freq /= torch.tensor(decode(index, "rope_freqs.weight")[0])
    return model


def decode(index: TensorIndex, name: str) -> np.ndarray:
    """A tensor's decoded values, float32 [rows, columns]."""
    info = index.tensors[name]
    data = np.fromfile(info.path, np.uint8, info.nbytes, offset=info.offset)
    rows = 1 if len(info.shape) == 1 else info.shape[0]
    return weights.get(info.encoding).decode(data.reshape(rows, -1))
