"""A tiny Gemma 4, and its file as llama.cpp's converter writes it (`Gemma4Model`)."""

from __future__ import annotations

from collections.abc import Mapping

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

from bench.gemma4 import gguf_name, per_layer, stored

SHAPE: dict[str, object] = {
    "global_head_dim": 32,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention"],
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 96,
}
"""What a tiny model has unless it is changed, beside what all have."""

STILL = 1e30
"""The divisor of a frequency that is to turn nothing."""


def make(changes: Mapping[str, object]) -> Gemma4ForCausalLM:
    """A float32 model, always the same for the same configuration."""
    model = Gemma4ForCausalLM(Gemma4TextConfig(**(SHAPE | dict(changes)))).eval()
    draws = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for values in stored(model).values():
            values.normal_(generator=draws)
            if values.ndim >= 2:
                values *= 1.5 / values.shape[-1] ** 0.5
            else:
                values.mul_(0.2).add_(1)
    return model


def write(writer: GGUFWriter, model: Gemma4ForCausalLM, encoding: str) -> None:
    """Write the model with its matrices in `encoding`, and give it the rounded weights that the file now holds."""
    write_keys(writer, model.config)
    with torch.no_grad():
        for name, values in stored(model).items():
            kind = GGMLQuantizationType[encoding if values.ndim >= 2 else "F32"]
            packed = gguf.quantize(values.numpy(), kind)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
            values.copy_(torch.tensor(gguf.dequantize(packed, kind).astype(np.float32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_keys(writer: GGUFWriter, config: Gemma4TextConfig) -> None:
    local = [kind == "sliding_attention" for kind in config.layer_types]
    dims, kv_heads, widths = (
        per_layer(config, key) for key in ("head_dim", "num_key_value_heads", "intermediate_size")
    )
    near, far = dims[local.index(True)], dims[local.index(False)]
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(local)
    writer.add_key_length(far)
    writer.add_value_length(far)
    writer.add_key_length_swa(near)
    writer.add_value_length_swa(near)
    writer.add_head_count_kv(kv_heads if len(set(kv_heads)) > 1 else kv_heads[0])
    borrowing = [index >= len(local) - config.num_kv_shared_layers for index in range(len(local))]
    doubled = [width * 2 if last else width for width, last in zip(widths, borrowing, strict=True)]
    writer.add_feed_forward_length(doubled if config.use_double_wide_mlp else widths[0])
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if config.final_logit_softcapping is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    local_rope, rope = (config.rope_parameters[f"{kind}_attention"] for kind in ("sliding", "full"))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_freq_base_swa(local_rope["rope_theta"])
    writer.add_rope_dimension_count(far)
    writer.add_rope_dimension_count_swa(near)
    turned = int(far * rope["partial_rotary_factor"] / 2)
    writer.add_tensor("rope_freqs.weight", np.array([1] * turned + [STILL] * (far // 2 - turned), np.float32))
