"""The feed-forward of a Gemma 4 that is a mixture of experts: one for every token, and beside it those chosen.

Tensors are those of llama.cpp (`llama_model_gemma4`), the mathematics those of Transformers (`Gemma4TextDecoderLayer`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.kernels.ops import Handle, Ops, Router, Tensor
from engine.models.blocks import projection, refuse
from engine.models.config import Config
from engine.models.model import WeightLoader
from engine.models.moe import Mixture


@dataclass(frozen=True)
class MixedFeedForward:
    """`router_norm` is the router's own scale and 1/√hidden_size in one; what each expert makes is scaled, too."""

    eps: float
    gate: Handle
    up: Handle
    down: Handle
    common_norm: Handle
    router: Router
    router_norm: Handle
    scores: Handle
    chosen_norm: Handle
    expert_gate: Handle
    expert_up: Handle
    expert_down: Handle
    made_norm: Handle
    post_norm: Handle

    @staticmethod
    def read(mixture: Mixture, config: Config, load: WeightLoader, index: int) -> MixedFeedForward:
        """The block of layer `index`."""
        hidden, width, n_experts = config.hidden_size, mixture.width, mixture.n_experts

        def norm(name: str) -> Handle:
            return load.vector(f"blk.{index}.{name}.weight", hidden)

        for name in ("ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"):
            refuse(load, f"blk.{index}.{name}.scale", "a scale for a whole matrix")
        if load.has(f"blk.{index}.ffn_gate_up_exps.weight"):
            gate, up = load.experts(f"blk.{index}.ffn_gate_up_exps.weight", n_experts, (width, width), hidden)
        else:
            (gate,) = load.experts(f"blk.{index}.ffn_gate_exps.weight", n_experts, (width,), hidden)
            (up,) = load.experts(f"blk.{index}.ffn_up_exps.weight", n_experts, (width,), hidden)
        shares = load.host(f"blk.{index}.ffn_down_exps.scale", n_experts)
        (down,) = load.experts(f"blk.{index}.ffn_down_exps.weight", n_experts, (hidden,), width, scales=shares)
        scale = load.host(f"blk.{index}.ffn_gate_inp.scale", hidden)
        return MixedFeedForward(
            eps=config.eps,
            gate=projection(load, index, "ffn_gate", config.intermediate_size, hidden),
            up=projection(load, index, "ffn_up", config.intermediate_size, hidden),
            down=projection(load, index, "ffn_down", hidden, config.intermediate_size),
            common_norm=norm("post_ffw_norm_1"),
            router=mixture.router,
            router_norm=load.made(scale / np.float32(math.sqrt(hidden))),
            scores=load.matrix(f"blk.{index}.ffn_gate_inp.weight", n_experts, hidden),
            chosen_norm=norm("pre_ffw_norm_2"),
            expert_gate=gate,
            expert_up=up,
            expert_down=down,
            made_norm=norm("post_ffw_norm_2"),
            post_norm=norm("post_ffw_norm"),
        )

    def add(self, ops: Ops, x: Tensor, normed: Tensor) -> Tensor:
        """x + the feed-forward of the rows `normed` and the experts of the rows x: → [n, hidden_size]."""
        common = ops.linear(ops.gated(normed, self.gate, self.up, "gelu_tanh"), self.down)
        common = ops.rms_norm(common, self.common_norm, self.eps)
        scores = ops.linear(ops.rms_norm(x, self.router_norm, self.eps), self.scores)
        routing = ops.route(scores, self.router)
        chosen = ops.rms_norm(x, self.chosen_norm, self.eps)
        made = ops.experts(chosen, routing, self.expert_gate, self.expert_up, self.expert_down, "gelu_tanh")
        made = ops.rms_norm(made, self.made_norm, self.eps, residual=common)
        return ops.rms_norm(made, self.post_norm, self.eps, residual=x)
