"""Tiny models of the DeepSeek family, made by Transformers and written as GGUF in the way of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import ExpertGatingFuncType, GGMLQuantizationType, GGUFWriter
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    PreTrainedModel,
)

from tests.tiny import CONTEXT, no_tokenizer, write_rotary

SHAPE: dict[str, object] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,  # the norms of the latents have it whatever the configuration says
    "pad_token_id": None,
}
V3: dict[str, object] = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 16,
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "ffn_gate_inp",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
    **{f"mlp.shared_experts.{name}_proj": f"ffn_{name}_shexp" for name in ("gate", "up", "down")},
}


def tiny_deepseek(version: int, **changes: object) -> PreTrainedModel:
    """A float32 model of DeepSeek-V2 or V3, always the same for the same changes to its configuration."""
    make_config, make_model = {
        2: (DeepseekV2Config, DeepseekV2ForCausalLM),
        3: (DeepseekV3Config, DeepseekV3ForCausalLM),
    }[version]
    config = make_config(**(SHAPE | (V3 if version == 3 else {}) | changes))
    config._attn_implementation = "eager"
    model = make_model(config).eval()
    draws = torch.Generator().manual_seed(22)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(generator=draws)
            if "norm" in name:
                values.mul_(0.2).add_(1)
            else:
                values *= 1.5 / values.shape[-1] ** 0.5
        for name, values in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                values.normal_(generator=draws).mul_(0.3)
    return model


def tensors(model: PreTrainedModel, apart: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Names of the file, and views of the parameters as the file has them (`DeepseekV2Model.modify_tensors`)."""
    config = model.config
    biases = ((name, values) for name, values in model.named_buffers() if name.endswith("e_score_correction_bias"))
    for name, values in (*model.named_parameters(), *biases):
        module, _, kind = name.rpartition(".")
        at = ""
        if name.startswith("model.layers."):
            layer, _, module = module.removeprefix("model.layers.").partition(".")
            at = f"blk.{layer}."
        if module == "self_attn.kv_b_proj" and not apart:
            yield f"{at}attn_kv_b.weight", values
        elif module == "self_attn.kv_b_proj":
            matrices = values.view(config.num_attention_heads, -1, config.kv_lora_rank)
            yield f"{at}attn_k_b.weight", matrices[:, : config.qk_nope_head_dim].transpose(1, 2)
            yield f"{at}attn_v_b.weight", matrices[:, config.qk_nope_head_dim :]
        elif module == "mlp.experts":
            if kind == "down_proj":
                yield f"{at}ffn_down_exps.weight", values
            else:
                gates, ups = values.chunk(2, dim=1)
                yield f"{at}ffn_gate_exps.weight", gates
                yield f"{at}ffn_up_exps.weight", ups
        elif kind == "e_score_correction_bias":
            yield f"{at}exp_probs_b.bias", values
        else:
            yield f"{at}{NAMES[module]}.{kind}", values


def write_deepseek(
    path: Path,
    model: PreTrainedModel,
    encoding: str = "F32",
    *,
    apart: bool = True,
    shard: int = 0,
    tokenizer: Callable[[GGUFWriter], object] = no_tokenizer,
) -> None:
    """Write the model with its matrices in `encoding`, and give it the rounded weights that the file now holds.

    Keys are those of `TextModel.set_gguf_parameters` and `DeepseekV2Model.set_gguf_parameters`; routers, norms and
    biases stay F32. Where keys and values are not `apart`, the file is as llama.cpp reads older ones
    (`llama_model_deepseek2::load_arch_tensors`): one matrix, and the numbers of heads before their latents.
    """
    config = model.config
    third = config.model_type == "deepseek_v3"
    writer = GGUFWriter(path, "deepseek2", split_max_tensors=shard)
    tokenizer(writer)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(1 if apart else config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    if apart:
        writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
        writer.add_value_length_mla(config.v_head_dim)
    else:
        writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
        writer.add_value_length(config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID if third else ExpertGatingFuncType.SOFTMAX)
    if config.n_group is not None:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    if third and config.norm_topk_prob:
        writer.add_expert_weights_norm(True)
    write_rotary(writer, model)
    if config.rope_parameters.get("mscale_all_dim") is not None:
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])
    with torch.no_grad():
        for name, view in tensors(model, apart):
            packs = name.endswith(".weight") and view.ndim > 1 and "ffn_gate_inp" not in name
            kind = GGMLQuantizationType[encoding if packs else "F32"]
            packed = gguf.quantize(np.ascontiguousarray(view.numpy()), kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
            view.copy_(torch.tensor(gguf.dequantize(packed, kind).reshape(view.shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
