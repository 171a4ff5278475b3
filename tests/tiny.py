"""Tiny models with random weights: made by Transformers, written as GGUF, loaded by the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import PreTrainedConfig, PreTrainedModel

from bench.hybrid import HYBRID
from bench.oracle import CLASSES, GEMMA, architecture_of, gguf_name, to_gguf, to_transformers
from engine import models
from engine.formats.gguf import read
from engine.kernels.ops import Ops
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model
from tests import tiny_gemma4

CONTEXT = 64
"""The context length of a tiny model, unless it is changed."""


SHAPE: dict[str, object] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
"""The configuration of a tiny model, unless it is changed."""
GEMMA_SHAPE: dict[str, object] = {
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 16,
    "sliding_window": 9,
}
"""What a tiny Gemma has besides: the converter knows no head of its own."""
BITNET_SHAPE: dict[str, object] = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
"""What a tiny BitNet has besides: ternary encodings have blocks of 256."""
HYBRID_SHAPE: dict[str, object] = {
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}
"""What a tiny Qwen3.5 has besides: three recurrent layers and one that attends."""
HYBRID_MIXTURE: dict[str, object] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 96,
}
"""What its mixtures have besides."""
FAMILY_SHAPES: dict[str, dict[str, object]] = {
    "bitnet": BITNET_SHAPE,
    "bitnet-b1.58": BITNET_SHAPE,
    "gemma2": GEMMA_SHAPE,
    "gemma3": GEMMA_SHAPE,
    "qwen35": HYBRID_SHAPE,
    "qwen35moe": HYBRID_SHAPE | HYBRID_MIXTURE,
    "qwen3vl": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}},
}
"""What a tiny model of a family has besides."""


def tiny(architecture: str, **changes: object) -> PreTrainedModel:
    """A float32 model of two layers, always the same for the same changes to its configuration.

    Its weights are large enough for attention to pick out single positions.
    """
    if architecture == "gemma4":
        return tiny_gemma4.make(SHAPE | changes)
    make_config, make_model = CLASSES[architecture]
    gemma, hybrid = architecture in GEMMA, architecture in HYBRID
    model = make_model(make_config(**(SHAPE | FAMILY_SHAPES.get(architecture, {}) | changes))).eval()
    draws = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(generator=draws)
            if values.ndim == 2:
                values *= 1.5 / values.shape[1] ** 0.5
            elif "norm" in name:
                centred = gemma or (hybrid and "linear_attn" not in name)
                values.mul_(0.2).add_(0 if centred else 1)
            elif values.ndim == 3 and "experts" in name:
                values *= 1.5 / values.shape[-1] ** 0.5
            elif "A_log" in name:
                values.sub_(3)  # states last for some twenty tokens
    return model


def no_tokenizer(writer: GGUFWriter) -> None:
    """llama.cpp loads no file that does not say so."""
    writer.add_tokenizer_model("none")


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    encoding: str = "F32",
    *,
    tokenizer: Callable[[GGUFWriter], None] = no_tokenizer,
    shard: int = 0,
) -> None:
    """Write the model with its matrices in `encoding`, and give it the rounded weights that the file now holds.

    Keys and tensors are those that llama.cpp's converter writes (`set_gguf_parameters`); norms and biases stay F32.
    `encoding` is one that the `gguf` package can quantise to; `tokenizer` adds what a tokenizer needs. `shard` is the
    most tensors of a file, 0 for all in one; shards are named by their numbers (`gguf_split`).
    """
    config = model.config.get_text_config()
    writer = GGUFWriter(path, architecture_of(config), split_max_tensors=shard)
    tokenizer(writer)
    if architecture_of(config) == "gemma4":
        tiny_gemma4.write(writer, model, encoding)
        return
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if architecture_of(config) != "qwen35moe":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type in ("llama", "smollm3", "phi3"):
        writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1)))
    if config.model_type == "phi3":  # `Phi3MiniModel`: 0 for none
        writer.add_sliding_window(config.sliding_window or 0)
    if architecture_of(config) in GEMMA:  # `Gemma2Model` and `Gemma3Model`
        writer.add_sliding_window(config.sliding_window)
        if config.attn_logit_softcapping is not None:
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        if config.final_logit_softcapping is not None:
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type == "bitnet":  # `BitnetModel`
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(1.0)
    if architecture_of(config) == "qwen3vl":  # `Qwen3VLTextModel`, and `MmprojModel` counts the levels
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])
        writer.add_num_deepstack_layers(len(model.config.vision_config.deepstack_visual_indexes))
    if architecture_of(config) in HYBRID:
        _write_hybrid(writer, config)
    write_rotary(writer, model)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if ".visual." in name:
                continue
            packs = (values.ndim == 2 or "experts" in name) and "mlp.gate." not in name and "expert_gate" not in name
            kind = GGMLQuantizationType[encoding if packs else "F32"]
            packed = gguf.quantize(to_gguf(name, values.numpy(), config), kind)
            writer.add_tensor(gguf_name(name, config), packed, raw_dtype=kind)
            rounded = gguf.dequantize(packed, kind).astype(np.float32)
            values.copy_(torch.tensor(to_transformers(name, rounded, config)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_model(path: Path, ops: Ops, context: int = CONTEXT) -> Model:
    """The engine's model of a GGUF file."""
    index = read(path)
    with closing(WeightStore(index, ops, Meter())) as store:
        return models.build(index.metadata, store, context=context)


def _write_hybrid(writer: GGUFWriter, config: PreTrainedConfig) -> None:
    """As `Qwen3NextModel` and `_Qwen35MRopeMixin`. A converter of today also lists the recurrent layers."""
    if architecture_of(config) == "qwen35moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    recurrent = [kind == "linear_attention" for kind in config.layer_types]
    if recurrent != [(index + 1) % 4 > 0 for index in range(len(recurrent))]:
        writer.add_array(f"{architecture_of(config)}.attention.recurrent_layers", recurrent)
    writer.add_full_attention_interval(4)
    writer.add_rope_dimension_count(int(config.head_dim * config.rope_parameters["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([11, 11, 10, 0])


def write_rotary(writer: GGUFWriter, model: PreTrainedModel) -> None:
    """Keys and tensors of rotary positions, as `set_gguf_parameters` and `generate_extra_tensors` of the converter."""
    writes, config = {}, model.config.get_text_config()
    # Gemma 3 scales the turning of its global layers; the base of the local ones is not written.
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "llama3":
        writes["rope_freqs.weight"] = _llama3_divisors(model)
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        for key, add in (
            ("original_max_position_embeddings", writer.add_rope_scaling_orig_ctx_len),
            ("attention_factor", writer.add_rope_scaling_yarn_attn_factor),
            ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
            ("beta_slow", writer.add_rope_scaling_yarn_beta_slow),
        ):
            if rope.get(key) is not None:
                add(rope[key])
    if rope["rope_type"] == "longrope":
        # As the converter does for Phi-3: the amplitude is worked out beforehand.
        original = rope["original_max_position_embeddings"]
        longer = config.max_position_embeddings / original
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(max(longer, 1)) / math.log(original)))
        writes["rope_factors_long.weight"] = np.array(rope["long_factor"], np.float32)
        writes["rope_factors_short.weight"] = np.array(rope["short_factor"], np.float32)
    for name, values in writes.items():
        writer.add_tensor(name, values)


def _llama3_divisors(model: PreTrainedModel) -> np.ndarray:
    """What Llama 3's scaling divides each plain frequency by, as the converter stores it in `rope_freqs.weight`."""
    dim, theta = model.config.head_dim, model.config.rope_parameters["rope_theta"]
    plain = theta ** (-np.arange(0, dim, 2) / dim)
    return (plain / model.model.rotary_emb.inv_freq.double().numpy()).astype(np.float32)
