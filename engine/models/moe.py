"""Mixtures of experts in place of a feed-forward (Shazeer et al., arXiv:1701.06538; Fedus et al., arXiv:2101.03961).

Keys and tensor names are those of the GGUF specification and of llama.cpp's converter (`gguf.constants`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from engine.errors import ModelFileError, UnsupportedModelError
from engine.kernels.ops import Activation, Handle, Ops, Router, Tensor
from engine.models.blocks import FeedForward, expert_scales, projection, refuse
from engine.models.config import MAX_EXPERTS, MAX_WIDTH, Config
from engine.models.decoder import PerPosition, ReadFeedForward
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader
from engine.models.traits import Traits

SCORES: Final[Mapping[int, Literal["softmax", "sigmoid"]]] = MappingProxyType(
    {1: "softmax", 2: "sigmoid", 3: "softmax"}
)
"""`expert_gating_func`. The third is the softmax over the chosen alone, which is the normalised one."""
SOFTMAX_OF_CHOSEN: Final = 3
MAX_SCALE: Final = 1e3


@dataclass(frozen=True)
class Mixture:
    """The numbers of a model's mixtures: `width` is that of one expert, `shared_width` that of the shared ones
    together, 0 without any. The first `dense` layers have a feed-forward instead."""

    n_experts: int
    width: int
    router: Router
    shared_width: int = 0
    dense: int = 0

    @staticmethod
    def read(
        keys: Metadata, *, gating: int = 1, normalise: bool = True, width: int | None = None, marks: int = 2
    ) -> Mixture:
        """From the keys of an architecture; the arguments are the family's own ways where the file does not say.

        Raises ModelFileError for what cannot be true, UnsupportedModelError for scores that are not known.
        """
        n_experts = keys.integer("expert_count", high=MAX_EXPERTS)
        k = keys.integer("expert_used_count", high=n_experts)
        gating = keys.integer("expert_gating_func", low=0, high=MAX_EXPERTS, default=gating) or gating
        if gating not in SCORES:
            raise UnsupportedModelError(
                f"The model chooses its experts by scores of the kind {gating} ({keys.whole('expert_gating_func')}); "
                "known are 1 (softmax), 2 (sigmoid) and 3 (softmax of those chosen)."
            )
        groups = keys.integer("expert_group_count", low=0, high=n_experts, default=1) or 1
        kept = keys.integer("expert_group_used_count", low=0, high=groups, default=groups) or groups
        if n_experts % groups or k > n_experts // groups * kept:
            raise ModelFileError(
                f"The model file's {n_experts} experts ({keys.whole('expert_count')}) in {groups} groups, of which "
                f"{kept} are kept, cannot give {k} to each token; the file is damaged, fetch it again."
            )
        width = keys.integer("expert_feed_forward_length", high=MAX_WIDTH, default=width)
        shared = keys.integer("expert_shared_count", low=0, high=MAX_EXPERTS, default=0)
        return Mixture(
            n_experts=n_experts,
            width=width,
            router=Router(
                k=k,
                scores=SCORES[gating],
                groups=groups,
                groups_kept=kept,
                marks=marks,
                normalise=gating == SOFTMAX_OF_CHOSEN or keys.flag("expert_weights_norm", default=normalise),
                scale=keys.number("expert_weights_scale", low=0.0, high=MAX_SCALE, default=0.0) or 1.0,
            ),
            shared_width=keys.integer(
                "expert_shared_feed_forward_length", low=0, high=MAX_WIDTH, default=shared * width
            ),
            dense=keys.integer("leading_dense_block_count", low=0, high=MAX_EXPERTS, default=0),
        )

    @property
    def feed_forward(self) -> ReadFeedForward:
        """For `Decoder`: the mixture of a layer, or the feed-forward of a dense one."""

        def read(config: Config, traits: Traits, load: WeightLoader, index: int) -> PerPosition:
            if index < self.dense:
                return FeedForward.read(config, traits, load, index)
            return MixtureOfExperts.read(self, config, traits, load, index)

        return read


@dataclass(frozen=True)
class SharedExpert:
    """The experts that every token goes to, as one; times the sigmoid of `mark` where there is one."""

    activation: Activation
    gate: Handle
    up: Handle
    down: Handle
    mark: Handle | None

    @staticmethod
    def read(mixture: Mixture, config: Config, traits: Traits, load: WeightLoader, index: int) -> SharedExpert | None:
        if not mixture.shared_width:
            return None
        width, hidden_size = mixture.shared_width, config.hidden_size
        mark = f"blk.{index}.ffn_gate_inp_shexp.weight"
        return SharedExpert(
            activation=traits.activation,
            gate=projection(load, index, "ffn_gate_shexp", width, hidden_size),
            up=projection(load, index, "ffn_up_shexp", width, hidden_size),
            down=projection(load, index, "ffn_down_shexp", hidden_size, width),
            mark=load.matrix(mark, 1, hidden_size) if load.has(mark) else None,
        )

    def run(self, ops: Ops, normed: Tensor) -> Tensor:
        made = ops.linear(ops.gated(normed, self.gate, self.up, self.activation), self.down)
        return made if self.mark is None else ops.gate(ops.linear(normed, self.mark), made, "sigmoid")


@dataclass(frozen=True)
class MixtureOfExperts:
    """Each token goes to the experts that its router chooses, and to those shared by all. A bias is `None` where the
    model has none; `choice_bias` counts for the choice alone."""

    router: Router
    activation: Activation
    scores: Handle
    scores_bias: Handle | None
    choice_bias: Handle | None
    gate: Handle
    up: Handle
    down: Handle
    gate_bias: Handle | None
    up_bias: Handle | None
    down_bias: Handle | None
    shared: SharedExpert | None

    @staticmethod
    def read(mixture: Mixture, config: Config, traits: Traits, load: WeightLoader, index: int) -> MixtureOfExperts:
        """The block of layer `index`."""
        n_experts, width, hidden_size = mixture.n_experts, mixture.width, config.hidden_size

        def bias(name: str, rows: int) -> Handle | None:
            name = f"blk.{index}.{name}.bias"
            needed = traits.biased_throughout
            return load.vector(name, n_experts, rows) if needed or load.has(name) else None

        def scores_bias(name: str, *, needed: bool) -> Handle | None:
            name = f"blk.{index}.{name}.bias"
            return load.vector(name, n_experts) if needed or load.has(name) else None

        def stacks(name: str, rows: tuple[int, ...], columns: int) -> list[Handle]:
            scales = expert_scales(load, f"blk.{index}.{name}.scale", n_experts)
            return load.experts(f"blk.{index}.{name}.weight", n_experts, rows, columns, scales=scales)

        if load.has(f"blk.{index}.ffn_gate_up_exps.weight"):
            refuse(load, f"blk.{index}.ffn_gate_up_exps.scale", "scales for fused projections")
            refuse(load, f"blk.{index}.ffn_gate_up_exps.bias", "a bias for fused projections")
            gate, up = stacks("ffn_gate_up_exps", (width, width), hidden_size)
        else:
            (gate,) = stacks("ffn_gate_exps", (width,), hidden_size)
            (up,) = stacks("ffn_up_exps", (width,), hidden_size)
        (down,) = stacks("ffn_down_exps", (hidden_size,), width)
        return MixtureOfExperts(
            router=mixture.router,
            activation=traits.activation,
            scores=projection(load, index, "ffn_gate_inp", n_experts, hidden_size),
            scores_bias=scores_bias("ffn_gate_inp", needed=traits.biased_throughout),
            choice_bias=scores_bias("exp_probs_b", needed=False),
            gate=gate,
            up=up,
            down=down,
            gate_bias=bias("ffn_gate_exps", width),
            up_bias=bias("ffn_up_exps", width),
            down_bias=bias("ffn_down_exps", hidden_size),
            shared=SharedExpert.read(mixture, config, traits, load, index),
        )

    def add(self, ops: Ops, x: Tensor, normed: Tensor) -> Tensor:
        """x + the mixture of the rows `normed`: → [n, hidden_size]."""
        routing = ops.route(ops.linear(normed, self.scores, bias=self.scores_bias), self.router, self.choice_bias)
        made = ops.experts(
            normed,
            routing,
            self.gate,
            self.up,
            self.down,
            self.activation,
            self.gate_bias,
            self.up_bias,
            self.down_bias,
        )
        if self.shared is not None:
            made = ops.add(made, self.shared.run(ops, normed))
        return ops.add(x, made)
