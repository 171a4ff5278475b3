"""Tiny mixtures of experts, made by Transformers and written as GGUF in the way of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)

from bench.oracle import TOWER
from tests.tiny import SHAPE, no_tokenizer, write_rotary


def qwen3vlmoe_config(**text: object) -> PreTrainedConfig:
    """Of the whole model: its text part has no class of its own."""
    indexes = [1, 2][: int(str(text["num_hidden_layers"]))]
    levels = {
        "deepstack_visual_indexes": indexes,
        "num_position_embeddings": 16,
        "out_hidden_size": text["hidden_size"],
    }
    return Qwen3VLMoeConfig(text_config=text, vision_config=TOWER | levels)


CLASSES = {
    "qwen3moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
    "qwen3vlmoe": (qwen3vlmoe_config, Qwen3VLMoeForConditionalGeneration),
    "gpt-oss": (GptOssConfig, GptOssForCausalLM),
    "llama": (MixtralConfig, MixtralForCausalLM),
}
"""By the architecture that a file names."""
MIXTURES = ("gpt-oss", "qwen3moe", "qwen3vlmoe")
"""Those that are mixtures always."""
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 16,
}
QWEN: dict[str, object] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
}
SHAPES: dict[str, dict[str, object]] = {
    "qwen3moe": QWEN,
    "qwen3vlmoe": QWEN
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}},
    "gpt-oss": {
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 9,
        "rope_parameters": YARN,
        "attention_bias": True,
    },
    "llama": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
}
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
}


def tiny_mixture(architecture: str, **changes: object) -> PreTrainedModel:
    """A float32 model of two layers, always the same for the same changes to its configuration."""
    make_config, make_model = CLASSES[architecture]
    config = make_config(**(SHAPE | SHAPES[architecture] | changes))
    config._attn_implementation = "eager"
    model = make_model(config).eval()
    draws = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(generator=draws)
            if "norm" in name:
                values.mul_(0.2).add_(1)
            elif "bias" in name:
                values.mul_(0.5)
            elif values.ndim > 1:
                values *= 1.5 / values.shape[1 if architecture == "gpt-oss" and values.ndim == 3 else -1] ** 0.5
    return model


def _turned(values: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of heads in the order of `LlamaModel.permute`: [heads, d/2, 2, columns]."""
    return values.view(heads, 2, values.shape[0] // heads // 2, -1).transpose(1, 2)


def tensors(architecture: str, model: PreTrainedModel, fused: bool) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Names of the file, views of the parameters in the file's order, and dimensions there.

    Experts as `Qwen2MoeModel.modify_tensors` and `GptOssModel.modify_tensors` write them; `fused` leaves gates and what
    they gate together, as the converter does when asked to.
    """
    config = model.config.get_text_config()
    for name, values in model.named_parameters():
        if ".visual." in name:
            continue
        name = name.replace("model.language_model.", "model.")
        if not name.startswith("model.layers."):
            whole = {
                "model.embed_tokens.weight": "token_embd",
                "model.norm.weight": "output_norm",
                "lm_head.weight": "output",
            }
            yield f"{whole[name]}.weight", values, values.ndim
            continue
        layer, _, rest = name.removeprefix("model.layers.").partition(".")
        at = f"blk.{layer}."
        if rest.startswith("mlp.experts."):
            part = rest.removeprefix("mlp.experts.").removesuffix("_bias")
            kind = "bias" if rest.endswith("_bias") else "weight"
            if architecture == "gpt-oss" and kind == "weight":
                values = values.transpose(1, 2)
            if part == "down_proj":
                yield f"{at}ffn_down_exps.{kind}", values, values.ndim
            elif architecture == "gpt-oss":
                yield f"{at}ffn_gate_exps.{kind}", values[:, ::2], values.ndim
                yield f"{at}ffn_up_exps.{kind}", values[:, 1::2], values.ndim
            elif fused:
                yield f"{at}ffn_gate_up_exps.{kind}", values, 3
            else:
                yield f"{at}ffn_gate_exps.{kind}", values[:, : values.shape[1] // 2], 3
                yield f"{at}ffn_up_exps.{kind}", values[:, values.shape[1] // 2 :], 3
        elif rest == "self_attn.sinks":
            yield f"{at}attn_sinks.weight", values, 1
        else:
            module, _, kind = rest.rpartition(".")
            heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
            if architecture == "llama" and module in heads:
                yield f"{at}{NAMES[module]}.{kind}", _turned(values, heads[module]), 2
            elif architecture == "gpt-oss" and module == "post_attention_layernorm":
                yield f"{at}post_attention_norm.{kind}", values, 1
            else:
                yield f"{at}{NAMES[module]}.{kind}", values, values.ndim


def write_mixture(
    path: Path,
    architecture: str,
    model: PreTrainedModel,
    encoding: str = "F32",
    *,
    fused: bool = False,
    shard: int = 0,
    tokenizer: Callable[[GGUFWriter], None] = no_tokenizer,
) -> None:
    """Write the model with its matrices in `encoding`, and give it the rounded weights that the file now holds.

    Keys are those of `TextModel.set_gguf_parameters` and of the families; routers, norms and biases stay F32.
    """
    config = model.config.get_text_config()
    writer = GGUFWriter(path, architecture, split_max_tensors=shard)
    tokenizer(writer)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture in ("qwen3moe", "qwen3vlmoe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture == "qwen3moe" and not config.norm_topk_prob:
        writer.add_expert_weights_norm(False)
    if architecture == "qwen3vlmoe":  # `Qwen3VLMoeTextModel`
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
        writer.add_num_deepstack_layers(len(model.config.vision_config.deepstack_visual_indexes))
    if architecture == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    if architecture == "gpt-oss":
        writer.add_sliding_window(config.sliding_window)
        writer.add_expert_feed_forward_length(config.intermediate_size)
    write_rotary(writer, model)
    with torch.no_grad():
        for name, view, dimensions in tensors(architecture, model, fused):
            packs = name.endswith(".weight") and dimensions > 1 and "ffn_gate_inp" not in name
            kind = GGMLQuantizationType[encoding if packs else "F32"]
            values = np.ascontiguousarray(view.numpy())
            shape = (-1, values.shape[-1]) if dimensions == 2 else values.shape
            packed = gguf.quantize(values.reshape(shape), kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
            view.copy_(torch.tensor(gguf.dequantize(packed, kind).reshape(view.shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
