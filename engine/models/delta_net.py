"""The recurrent block of Qwen3.5: a short convolution, the gated delta rule, and a gated norm.

Yang, Kautz, Hatamizadeh, Gated Delta Networks (arXiv:2412.06464). Tensor names are those of the GGUF specification. In
a file the value heads lie so that head h belongs to key head h mod n_key_heads (llama.cpp's converter,
`_LinearAttentionVReorderBase`), and `ssm_a` is what decay rates are: below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ModelFileError
from engine.kernels.ops import Handle, LayerCache, Ops, Rotary, Tensor
from engine.kernels.state import MAX_TAPS, StateSpec
from engine.models.blocks import projection
from engine.models.config import MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH, Config
from engine.models.metadata import Metadata
from engine.models.model import WeightLoader


def read_state(keys: Metadata) -> StateSpec:
    """The state of each recurrent layer, from the keys of an architecture. Raises ModelFileError for what cannot be."""
    n_key_heads = keys.integer("ssm.group_count", high=MAX_HEADS)
    n_heads = keys.integer("ssm.time_step_rank", high=MAX_HEADS)
    key_dim = keys.integer("ssm.state_size", high=MAX_HEAD_DIM)
    values = keys.integer("ssm.inner_size", high=MAX_WIDTH)
    for total, key, among, by in (
        (n_heads, "ssm.time_step_rank", n_key_heads, "ssm.group_count"),
        (values, "ssm.inner_size", n_heads, "ssm.time_step_rank"),
    ):
        if total % among:
            raise ModelFileError(
                f"The model file's {keys.whole(key)} {total} cannot be split evenly among {among} "
                f"({keys.whole(by)}); the file is damaged, fetch it again."
            )
    return StateSpec(
        channels=2 * n_key_heads * key_dim + values,
        taps=keys.integer("ssm.conv_kernel", high=MAX_TAPS),
        n_key_heads=n_key_heads,
        n_heads=n_heads,
        key_dim=key_dim,
        value_dim=values // n_heads,
    )


@dataclass(frozen=True)
class DeltaNet:
    """A `Mixer`: `inputs` makes queries, keys and values, `output_gates` what gates them in the end; `decays` and
    `strengths` make a number for each head, of which `rate` and `bias` make how much it forgets and learns."""

    cache: StateSpec
    eps: float
    inputs: Handle
    output_gates: Handle
    decays: Handle
    strengths: Handle
    taps: Handle
    rate: Handle
    bias: Handle
    norm: Handle
    output: Handle

    @staticmethod
    def read(config: Config, state: StateSpec, load: WeightLoader, index: int) -> DeltaNet:
        """The block of layer `index`."""
        width, values = config.hidden_size, state.n_heads * state.value_dim
        return DeltaNet(
            cache=state,
            eps=config.eps,
            inputs=projection(load, index, "attn_qkv", state.channels, width),
            output_gates=projection(load, index, "attn_gate", values, width),
            decays=projection(load, index, "ssm_alpha", state.n_heads, width),
            strengths=projection(load, index, "ssm_beta", state.n_heads, width),
            taps=load.vector(f"blk.{index}.ssm_conv1d.weight", state.channels, state.taps),
            rate=load.vector(f"blk.{index}.ssm_a", state.n_heads),
            bias=load.vector(f"blk.{index}.ssm_dt.bias", state.n_heads),
            norm=load.vector(f"blk.{index}.ssm_norm.weight", state.value_dim),
            output=projection(load, index, "ssm_out", width, values),
        )

    def add(
        self,
        ops: Ops,
        x: Tensor,
        normed: Tensor,
        rotary: Rotary | None,
        cache: LayerCache,
        start: int,
        until: Sequence[int] | None = None,
    ) -> Tensor:
        """x + the delta rule's answers to the rows `normed`: → [n, hidden_size]. Its order is all that tells positions
        apart."""
        inputs, gates, a, b = ops.linears(normed, (self.inputs, self.output_gates, self.decays, self.strengths))
        mixed = ops.convolved(inputs, self.taps, cache, start, "silu")
        answers = ops.delta_rule(mixed, a, b, self.rate, self.bias, cache, start)
        gated = ops.gate(gates, ops.rms_norm(answers, self.norm, self.eps), "silu")
        return ops.linear(gated, self.output, residual=x)
