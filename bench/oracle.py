"""Models as Transformers has them and as GGUF has them: the same parameters under other names, some in other orders.

The names are those of the `gguf` package, the orders those of the converter of llama.cpp, which writes with it
(`conversion/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import (
    BitNetConfig,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from bench import gemma4, hybrid
from bench.bitnet import PROJECTIONS, bitnet_model, silu_config, ternary
from engine import weights
from engine.formats.index import TensorIndex

TOWER = {
    "depth": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 8,
    "spatial_merge_size": 2,
}
"""The numbers of a vision tower that is small, where one has to be there."""


def qwen3vl_config(**text: Any) -> PreTrainedConfig:
    """Of the whole model: its text part has no class of its own."""
    levels = {"deepstack_visual_indexes": [1, 2], "num_position_embeddings": 16, "out_hidden_size": text["hidden_size"]}
    return Qwen3VLConfig(text_config=text, vision_config=TOWER | levels)


CLASSES: dict[str, tuple[Callable[..., PreTrainedConfig], Callable[..., PreTrainedModel]]] = {
    "bitnet": (silu_config, bitnet_model),
    "bitnet-b1.58": (BitNetConfig, bitnet_model),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "gemma4": (Gemma4TextConfig, Gemma4ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
    "phi3": (Phi3Config, Phi3ForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "qwen35": (Qwen3_5TextConfig, Qwen3_5ForCausalLM),
    "qwen35moe": (Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM),
    "qwen3vl": (qwen3vl_config, Qwen3VLForConditionalGeneration),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
}
"""By the architecture that a file names."""
GEMMA = ("gemma2", "gemma3")
REORDERED = ("llama", "smollm3")
"""Architectures whose queries and keys the converter reorders: `LlamaModel.permute`, which `SmolLM3Model` inherits."""
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    # Phi-3: `Phi3MiniModel` leaves the rows in their order: queries, keys, values; the gate, what it gates.
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    "mlp.ffn_sub_norm": "ffn_sub_norm",
}
GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
LAYERS = "model.layers."
OTHER_NAMES = {"qwen3_vl": "qwen3vl", "qwen3_vl_text": "qwen3vl"}
"""Architectures that GGUF calls otherwise."""


def architecture_of(config: PreTrainedConfig) -> str:
    """The name that a file gives to it."""
    if config.model_type == "bitnet" and config.hidden_act == "relu2":
        return "bitnet-b1.58"
    return config.model_type.removesuffix("_text").replace("qwen3_", "qwen3").replace("qwen35_", "qwen35")


def gguf_name(name: str, config: PreTrainedConfig) -> str:
    """A parameter's name in Transformers → the tensor's name in a file."""
    if architecture_of(config) == "gemma4":
        return gemma4.gguf_name(name)
    name = name.replace("model.language_model.", "model.")
    names = NAMES
    if architecture_of(config) in GEMMA:
        names = NAMES | GEMMA_NAMES
    if architecture_of(config) in hybrid.HYBRID:
        names = NAMES | hybrid.NAMES
    if not name.startswith(LAYERS):
        return names[name]
    layer, _, rest = name.removeprefix(LAYERS).partition(".")
    if rest in hybrid.PARAMETERS and architecture_of(config) in hybrid.HYBRID:
        return f"blk.{layer}.{hybrid.PARAMETERS[rest]}"
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{names[module]}.{kind}"


def to_gguf(name: str, values: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """A parameter's values as the converter stores them.

    Gemma's norms multiply with one more than their weights; the converter adds it (`Gemma3Model.norm_shift`). In
    reordered heads Transformers turns row i with row i + d/2, a file 2i with 2i + 1: in weights [rows, columns] and
    biases [rows] alike.
    """
    if architecture_of(config) in hybrid.HYBRID:
        return hybrid.to_gguf(name, values, config)
    if architecture_of(config) in GEMMA and name.endswith("norm.weight"):
        return values + np.float32(1)
    if config.model_type == "bitnet" and name.removesuffix(".weight").endswith(PROJECTIONS):
        return ternary(values)
    return _reorder(values, _reordered_heads(name, config), lambda dim: np.arange(dim).reshape(2, dim // 2).T.ravel())


def to_transformers(name: str, values: np.ndarray, config: PreTrainedConfig) -> np.ndarray:
    """The inverse of `to_gguf`, but for what that rounds."""
    if architecture_of(config) in hybrid.HYBRID:
        return hybrid.to_transformers(name, values, config)
    if architecture_of(config) in GEMMA and name.endswith("norm.weight"):
        return values - np.float32(1)
    return _reorder(values, _reordered_heads(name, config), lambda dim: np.arange(dim).reshape(dim // 2, 2).T.ravel())


def _reordered_heads(name: str, config: PreTrainedConfig) -> int:
    """Heads among the rows of a parameter that the converter reorders; 0 for all others."""
    if architecture_of(config) not in REORDERED:
        return 0
    if ".q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".k_proj." in name else 0


def _reorder(values: np.ndarray, heads: int, order: Any) -> np.ndarray:
    if heads == 0:
        return values
    dim = len(values) // heads
    return values.reshape(heads, dim, -1)[:, order(dim)].reshape(values.shape)


def transformers_model(index: TensorIndex) -> PreTrainedModel:
    """The float32 model of a file, over its decoded weights."""
    architecture = index.metadata["general.architecture"]
    make_config, make_model = CLASSES[architecture]
    of_keys = gemma4.configuration(index) if architecture == "gemma4" else _configuration(index, architecture)
    config = make_config(**of_keys)
    model = make_model(config).eval()
    parameters = gemma4.stored(model) if architecture == "gemma4" else dict(model.named_parameters())
    with torch.no_grad():
        for name, values in parameters.items():
            if ".visual." in name:
                continue
            tensor = gguf_name(name, config)
            stored = decode(index, tensor).reshape(index.tensors[tensor].shape)
            values.copy_(torch.tensor(to_transformers(name, stored, config)))
        if "rope_freqs.weight" in index.tensors and architecture != "gemma4":
            model.model.rotary_emb.inv_freq /= torch.tensor(decode(index, "rope_freqs.weight")[0])
    return model


def _configuration(index: TensorIndex, architecture: str) -> dict[str, Any]:
    meta: dict[str, Any] = {key.removeprefix(f"{architecture}."): value for key, value in index.metadata.items()}
    hidden_size, n_heads = meta["embedding_length"], meta["attention.head_count"]
    head_dim = meta.get("attention.key_length", hidden_size // n_heads)
    given = {
        "vocab_size": index.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": meta.get("feed_forward_length"),
        "num_hidden_layers": meta["block_count"],
        "num_attention_heads": n_heads,
        "num_key_value_heads": meta.get("attention.head_count_kv", n_heads),
        "head_dim": head_dim,
        "max_position_embeddings": meta["context_length"],
        "rms_norm_eps": meta["attention.layer_norm_rms_epsilon"],
        "rope_parameters": _rope_parameters(index, meta, head_dim),
        "attention_bias": "blk.0.attn_q.bias" in index.tensors,
        "tie_word_embeddings": "output.weight" not in index.tensors,
        "pad_token_id": None,
    }
    if architecture in hybrid.HYBRID:
        given |= hybrid.configuration(meta)
    if architecture in ("phi3", *GEMMA):
        given["sliding_window"] = meta.get("attention.sliding_window") or None
    if architecture in GEMMA:
        largest = meta["block_count"] == {"gemma2": 46, "gemma3": 62}[architecture]
        given["query_pre_attn_scalar"] = hidden_size // n_heads if largest else head_dim
        given["attn_logit_softcapping"] = meta.get("attn_logit_softcapping")
        given["final_logit_softcapping"] = meta.get("final_logit_softcapping")
    if architecture == "qwen3vl":
        given["rope_parameters"]["mrope_section"] = meta["rope.dimension_sections"][:3]
    if architecture == "gemma3":
        local = {"rope_type": "default", "rope_theta": meta.get("rope.freq_base_swa", 10000.0)}
        given["rope_parameters"] = {"full_attention": given["rope_parameters"], "sliding_attention": local}
    return given


def _rope_parameters(index: TensorIndex, meta: dict[str, Any], head_dim: int) -> dict[str, Any]:
    kind = meta.get("rope.scaling.type", "none")
    if kind not in ("none", "linear") or "rope_factors_long.weight" in index.tensors:
        raise SystemExit("The file scales its rotary positions in a way that this comparison does not do.")
    rope = {
        "rope_type": "default" if kind == "none" else kind,
        "rope_theta": meta.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": meta.get("rope.dimension_count", head_dim) / head_dim,
    }
    return rope if kind == "none" else rope | {"factor": meta["rope.scaling.factor"]}


def decode(index: TensorIndex, name: str) -> np.ndarray:
    """A tensor's decoded values, float32 [rows, columns]."""
    info = index.tensors[name]
    data = np.fromfile(info.path, np.uint8, info.nbytes, offset=info.offset)
    rows = 1 if len(info.shape) == 1 else info.shape[0]
    return weights.get(info.encoding).decode(data.reshape(rows, -1))
