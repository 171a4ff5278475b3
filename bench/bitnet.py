"""BitNet as Transformers runs it, and its weights as the converter of llama.cpp stores them."""

from __future__ import annotations

from unittest import mock

import numpy as np
from transformers import BitNetConfig, BitNetForCausalLM

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def silu_config(**values: object) -> BitNetConfig:
    """A configuration of llama.cpp's `bitnet`."""
    return BitNetConfig(hidden_act="silu", **values)


def bitnet_model(config: BitNetConfig) -> BitNetForCausalLM:
    """The model whose projections round their activations to int8, as `quantization_config` asks for; their weights
    are taken as they are."""
    # The compiler takes seconds to import, and its code longer to make: the functions stay as they are written.
    with mock.patch("torch.compile", lambda function: function):
        from transformers.integrations.bitnet import AutoBitLinear
    model = BitNetForCausalLM(config)
    for name, module in list(model.named_modules()):
        if name.endswith(PROJECTIONS):
            rounding = AutoBitLinear(module.in_features, module.out_features, module.bias is not None)
            model.set_submodule(name, rounding)
    return model


def ternary(values: np.ndarray) -> np.ndarray:
    """The nearest of -s, 0 and s, s the mean size (`BitnetModel.weight_quant` of the converter)."""
    scale = np.maximum(np.abs(values).mean(dtype=np.float64), 1e-5)
    return (np.clip(np.rint(values / scale), -1, 1) * scale).astype(np.float32)
