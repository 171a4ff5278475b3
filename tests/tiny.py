"""Tiny models with random weights: made by Transformers, written as GGUF, loaded by the engine."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import PreTrainedModel

from bench.oracle import CLASSES, gguf_name, reordered_heads, to_gguf_rows, to_transformers_rows
from engine import models
from engine.formats.gguf import read
from engine.kernels.ops import Ops
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model

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
    "tie_word_embeddings": False,
}
"""The configuration of a tiny model, unless it is changed."""


def tiny(architecture: str, **changes: object) -> PreTrainedModel:
    """A float32 model of two layers, always the same for the same changes to its configuration.

    Its weights are large enough for attention to pick out single positions.
    """
    make_config, make_model = CLASSES[architecture]
    model = make_model(make_config(**(SHAPE | changes))).eval()
    draws = torch.Generator().manual_seed(20)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(generator=draws)
            if values.ndim == 2:
                values *= 1.5 / values.shape[1] ** 0.5
            elif "norm" in name:
                values.mul_(0.2).add_(1)
    return model


def write_gguf(path: Path, model: PreTrainedModel, encoding: str = "F32") -> None:
    """Write the model with its matrices in `encoding`, and give it the rounded weights that the file now holds.

    Keys and tensors are those that llama.cpp's converter writes (`set_gguf_parameters`); norms and biases stay F32.
    `encoding` is one that the `gguf` package can quantise to.
    """
    config = model.config
    writer = GGUFWriter(path, config.model_type)
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
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if config.rope_parameters["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(model))
    with torch.no_grad():
        for name, values in model.named_parameters():
            heads = reordered_heads(name, config)
            kind = GGMLQuantizationType[encoding if values.ndim == 2 else "F32"]
            packed = gguf.quantize(to_gguf_rows(values.numpy(), heads), kind)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
            rounded = gguf.dequantize(packed, kind).astype(np.float32)
            values.copy_(torch.tensor(to_transformers_rows(rounded, heads)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_model(path: Path, ops: Ops, context: int = CONTEXT) -> Model:
    """The engine's model of a GGUF file."""
    index = read(path)
    with closing(WeightStore(index, ops, Meter())) as store:
        return models.build(index.metadata, store, context=context)


def _llama3_divisors(model: PreTrainedModel) -> np.ndarray:
    """What Llama 3's scaling divides each plain frequency by, as the converter stores it in `rope_freqs.weight`."""
    dim, theta = model.config.head_dim, model.config.rope_parameters["rope_theta"]
    plain = theta ** (-np.arange(0, dim, 2) / dim)
    return (plain / model.model.rotary_emb.inv_freq.double().numpy()).astype(np.float32)
