"""Mixtures of experts. What the router chose never leaves C, so that a pass can be replayed."""

from __future__ import annotations

from engine.kernels.native.handles import AnyStack, LentStack, NativeRouting
from engine.kernels.native.lent import Walks
from engine.kernels.native.pointwise import ACTIVATION_NUMBERS, NativeVector
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation, Router


class Experts(Walks):
    """The part of `NativeOps` for mixtures of experts."""

    def route(self, logits: NativeTensor, router: Router, bias: NativeVector | None = None) -> NativeRouting:
        n, n_experts = logits.n, logits.width
        assert 1 <= router.k <= n_experts and n_experts % router.groups == 0
        assert 1 <= router.groups_kept <= router.groups and (bias is None or bias.values.size == n_experts)
        ids, weights = (self._workspace.take(n, router.k) for _ in range(2))
        self._call(
            "ms_route",
            *(logits.address, None if bias is None else bias.address, n, n_experts, router.k),
            *(router.scores == "sigmoid", router.groups, router.groups_kept, router.marks, router.normalise),
            *(router.scale, ids.address, weights.address),
        )
        return NativeRouting(ids, weights)

    def experts(
        self,
        x: NativeTensor,
        routing: NativeRouting,
        gate: AnyStack,
        up: AnyStack,
        down: AnyStack,
        activation: Activation = "silu",
        gate_bias: NativeVector | None = None,
        up_bias: NativeVector | None = None,
        down_bias: NativeVector | None = None,
    ) -> NativeTensor:
        for stack, bias in ((gate, gate_bias), (up, up_bias), (down, down_bias)):
            assert bias is None or bias.values.size == stack.weight.n_experts * stack.weight.rows
        if isinstance(gate, LentStack) or isinstance(up, LentStack) or isinstance(down, LentStack):
            return self._lent_experts(x, routing, gate, up, down, activation, (gate_bias, up_bias, down_bias))
        out = self._workspace.take(x.n, down.weight.rows)
        self._call(
            "ms_experts",
            *(x.address, routing.ids.address, routing.weights.address, x.n, routing.ids.width),
            *(ACTIVATION_NUMBERS[activation], gate.address, up.address, down.address),
            *(None if bias is None else bias.address for bias in (gate_bias, up_bias, down_bias)),
            out.address,
        )
        return out
