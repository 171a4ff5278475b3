"""Operations on weights that are lent: the sums of those in memory, over one window of rows after the other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import closing

import numpy as np

from engine.buffers import U8
from engine.kernels.native.handles import (
    AnyStack,
    LentMatrix,
    LentStack,
    Matrix,
    NativeRouting,
    address,
    described,
)
from engine.kernels.native.library import CStack
from engine.kernels.native.pointwise import ACTIVATION_NUMBERS, NativeVector, Pointwise
from engine.kernels.native.recording import c_tokens
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation
from engine.kernels.walking import walking

Biases = tuple[NativeVector | None, NativeVector | None, NativeVector | None]


class Walks(Pointwise):
    """The part of `NativeOps` for weights that are lent."""

    def _input(self, x: NativeTensor, weight: Matrix) -> NativeTensor:
        """x as a weight that rounds tokens is to have it, where C does not see to that itself."""
        if weight.input != "token":
            return x
        out = self._workspace.take(x.n, x.width)
        self._call("ms_round_tokens", x.address, x.n, x.width, out.address)
        return out

    def _lent_embed(self, table: LentMatrix, tokens: Sequence[int], scale: float) -> NativeTensor:
        weight = table.weight
        out = self._workspace.take(len(tokens), weight.columns)
        rows = table.lent.lender.rows(table.lent, tokens)
        c, ids = described(rows, weight.columns, table.encoding, None, 0, len(rows)), c_tokens(range(len(rows)))
        self._call("ms_embed", ctypes.addressof(c), ctypes.addressof(ids), len(rows), scale, out.address)
        return out

    def _lent_linear(
        self,
        x: NativeTensor,
        weight: LentMatrix,
        bias: NativeVector | None,
        residual: NativeTensor | None,
        softcap: float | None,
    ) -> NativeTensor:
        given, out = self._input(x, weight), self._workspace.take(x.n, weight.weight.rows)

        def multiply(part: int, again: bool) -> None:
            self._call(
                "ms_linear",
                *(given.address, x.n, 1, part, None, None, out.address, None, None),
                *(address(bias), address(residual), softcap or 0.0, again),
            )

        if not self._walk((weight,), multiply):
            return self._lent_linear(x, weight, bias, residual, softcap)
        return out

    def _lent_gated(self, x: NativeTensor, gate: Matrix, up: Matrix, activation: Activation) -> NativeTensor | None:
        """`None` where the two do not go together."""
        if gate.input != up.input:
            return None
        x = self._input(x, gate)
        out = self._workspace.take(x.n, gate.weight.rows)

        def multiply(gate: int, up: int, again: bool) -> None:
            self._call("ms_gated", x.address, x.n, ACTIVATION_NUMBERS[activation], gate, up, out.address, again)

        return out if self._walk((gate, up), multiply) else None

    def _walk(self, matrices: Sequence[Matrix], multiply: Callable[..., None]) -> bool:
        """Call `multiply` for each window with where its part of every matrix is described, and whether it is not the
        first. → False where that shows that the input of one was another than was thought."""
        lent = [matrix.lent for matrix in matrices if isinstance(matrix, LentMatrix)]
        with walking(lent[0].lender.walk(lent)) as windows:
            for window in windows:
                first, data, stop = window.first, iter(window.data), window.first + len(window.data[0])
                made = (
                    each.part(first, next(data) if isinstance(each, LentMatrix) else each.weight.data[first:stop])
                    for each in matrices
                )
                parts = [part for part in made if part is not None]
                if len(parts) < len(matrices):
                    return False
                multiply(*(part.address for part in parts), first > 0)
        return True

    def _lent_heads(self, x: NativeTensor, weight: LentStack, transposed: bool, out: NativeTensor) -> None:
        stack = weight.weight
        with walking(weight.lent.lender.walk([weight.lent])) as windows:
            for window in windows:
                data = window.data[0]
                c = CStack(weight.part(0, 0, data[0]), len(data), data.strides[0], None)
                self._call(
                    "ms_head_linears",
                    *(x.address, x.n, ctypes.addressof(c), window.first, stack.n_experts, transposed, out.address),
                )

    def _lent_experts(
        self,
        x: NativeTensor,
        routing: NativeRouting,
        gate: AnyStack,
        up: AnyStack,
        down: AnyStack,
        activation: Activation,
        biases: Biases,
    ) -> NativeTensor:
        if not (isinstance(gate, LentStack) and isinstance(up, LentStack) and isinstance(down, LentStack)):
            return self._experts_apart(x, routing, gate, up, down, activation, biases)
        gate_bias, up_bias, down_bias = (address(bias) for bias in biases)
        chosen = np.unique(routing.ids.array().view(np.int32)).tolist()
        gated = self._workspace.take(x.n, gate.weight.rows)
        out = self._zeros(x.n, down.weight.rows)
        ids, shares, n, k = routing.ids.address, routing.weights.address, x.n, routing.ids.width
        with walking(gate.lent.lender.experts(gate.lent, up.lent, down.lent, chosen)) as windows:
            for window in windows:
                expert, first, again = window.expert, window.first, window.first > 0
                if window.down:
                    last = down.part(expert, first, window.data[0])
                    self._call(
                        "ms_expert_adds",
                        *(gated.address, ids, shares, n, k, expert, ctypes.addressof(last), down_bias, again),
                        out.address,
                    )
                else:
                    gates, ups = (
                        stack.part(expert, first, data) for stack, data in zip((gate, up), window.data, strict=True)
                    )
                    self._call(
                        "ms_expert_gates",
                        *(x.address, ids, n, k, expert, ACTIVATION_NUMBERS[activation]),
                        *(ctypes.addressof(gates), ctypes.addressof(ups), gate_bias, up_bias, again, gated.address),
                    )
        return out

    def _experts_apart(
        self,
        x: NativeTensor,
        routing: NativeRouting,
        gate: AnyStack,
        up: AnyStack,
        down: AnyStack,
        activation: Activation,
        biases: Biases,
    ) -> NativeTensor:
        """Some stacks in memory, the others lent: one stack after the other, those that are lent whole."""
        ids = routing.ids.array().view(np.int32)
        rows = self._workspace.take(ids.size, x.width)
        rows.array()[:] = x.array()[np.argsort(ids, axis=None, kind="stable") // ids.shape[1]]
        chosen, counts = np.unique(ids, return_counts=True)
        stops = np.cumsum(counts)
        spans = dict(zip(chosen.tolist(), zip((stops - counts).tolist(), stops.tolist(), strict=True), strict=True))

        def products(stack: AnyStack, bias: NativeVector | None) -> NativeTensor:
            out = self._workspace.take(rows.n, stack.weight.rows)
            with closing(self._matrices(stack, spans)) as matrices:
                for expert, data in matrices:
                    given, made = (part.rows(*spans[expert]) for part in (rows, out))
                    c = stack.part(expert, 0, data)
                    own = None if bias is None else bias.address + expert * stack.weight.rows * 4
                    self._call(
                        "ms_linear",
                        *(given.address, given.n, 1, ctypes.addressof(c), None, None, made.address, None, None),
                        *(own, None, 0.0, False),
                    )
            return out

        gated = self.gate(products(gate, biases[0]), products(up, biases[1]), activation)
        out = self._zeros(x.n, down.weight.rows)
        with closing(self._matrices(down, spans)) as matrices:
            for expert, data in matrices:
                c = down.part(expert, 0, data)
                self._call(
                    "ms_expert_adds",
                    *(gated.rows(*spans[expert]).address, routing.ids.address, routing.weights.address, *ids.shape),
                    *(expert, ctypes.addressof(c), address(biases[2]), False, out.address),
                )
        return out

    def _matrices(self, stack: AnyStack, chosen: Container[int]) -> Generator[tuple[int, U8], None, None]:
        """The chosen experts' matrices of one stack, ascending."""
        if not isinstance(stack, LentStack):
            yield from ((expert, data) for expert, data in enumerate(stack.weight.data) if expert in chosen)
            return
        with walking(stack.lent.lender.walk([stack.lent])) as windows:
            for window in windows:
                experts = enumerate(window.data[0], window.first)
                yield from ((expert, data) for expert, data in experts if expert in chosen)

    def _zeros(self, n: int, width: int) -> NativeTensor:
        out = self._workspace.take(n, width)
        out.array()[:] = 0
        return out
