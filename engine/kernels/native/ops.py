"""`Ops` over the C kernels: numpy buffers, ctypes calls, and a pool of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.address_space import raise_it
from engine.buffers import aligned
from engine.errors import BudgetError, UnsupportedModelError
from engine.kernels.kv import positions, row_bytes
from engine.kernels.native import library
from engine.kernels.native.experts import Experts
from engine.kernels.native.handles import (
    AnyStack,
    LentMatrix,
    LentStack,
    Matrix,
    NativeMatrix,
    NativeStack,
    address,
    described,
)
from engine.kernels.native.library import CCache, CStack
from engine.kernels.native.pointwise import ACTIVATION_NUMBERS, NativeVector
from engine.kernels.native.recording import c_tokens
from engine.kernels.native.recurrent import NativeState, Recurrent
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation, AttentionSpec, CacheSpec, LayerCache, LayerSpec, Rotary, Stack, Weight
from engine.kernels.state import StateSpec
from engine.kernels.ternary import row_scales, ternary

F32 = npt.NDArray[np.float32]
CACHE_NUMBERS: Final = MappingProxyType({"f32": 0, "f16": 1, "q8_0": 2})
"""`ms_cache_kind` by name."""


@dataclass(frozen=True)
class NativeCache:
    """One layer's keys and values as cache.h lays them out; untouched pages take no memory."""

    spec: CacheSpec
    capacity: int
    kind: str
    nbytes: int
    c: CCache
    address: int
    buffers: tuple[npt.NDArray[np.uint8], ...] = field(repr=False)


class NativeOps(Experts, Recurrent):
    """The CPU. Results follow CONTRACT.md to the bit, whatever the thread count or the instruction set.

    Not for use by two threads at once. Raises SettingsError for a thread count or an instruction set that cannot be.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        super().__init__(threads, isa)
        self._encodings = library.encodings(self._lib)

    def matrix(self, weight: Weight) -> Matrix:
        number = self._number(weight)
        if weight.lent is not None:
            self._lends = True
            return LentMatrix(weight, weight.lent, number, ternary(weight))
        scales = row_scales(weight)
        c = described(weight.data, weight.columns, number, weight.scale, 0, weight.rows, scales)
        return NativeMatrix(weight, c, ctypes.addressof(c), scales)

    def stack(self, weight: Stack) -> AnyStack:
        number = self._number(weight)
        if weight.lent is not None:
            self._lends = True
            return LentStack(weight, weight.lent, number)
        scales = None if weight.scales is None else weight.scales.ctypes.data
        first = described(weight.data[0], weight.columns, number, None, 0, weight.rows)
        c = CStack(first, weight.n_experts, weight.data.strides[0], scales)
        return NativeStack(weight, c, ctypes.addressof(c))

    def _number(self, weight: Weight | Stack) -> int:
        """Of its encoding."""
        number = self._encodings.get(weight.encoding)
        if number is None:
            raise UnsupportedModelError(
                f"The weight {weight.name} is in {weight.encoding}, for which the CPU engine has no kernel yet; "
                f"it has: {', '.join(self._encodings)}."
            )
        return number

    def vector(self, values: F32) -> NativeVector:
        values = np.ascontiguousarray(values, np.float32)
        return NativeVector(values, values.ctypes.data)

    def cache(self, spec: LayerSpec, capacity: int, kind: str) -> NativeCache | NativeState:
        if isinstance(spec, StateSpec):
            return NativeState.made(spec, capacity)
        sizes = row_bytes(spec, kind)
        try:
            rooms = [aligned(spec.n_kv_heads * positions(capacity) * size) for size in sizes if size]
        except MemoryError as error:
            raise BudgetError(
                f"There is no memory for a context of {capacity} tokens: {raise_it()}ask for a shorter one."
            ) from error
        c = CCache(
            rooms[0].ctypes.data, rooms[-1].ctypes.data, capacity, spec.n_kv_heads, spec.key_dim, spec.value_dim,
            CACHE_NUMBERS[kind],
        )  # fmt: skip
        nbytes = sum(room.nbytes for room in rooms)
        return NativeCache(spec, capacity, kind, nbytes, c, ctypes.addressof(c), tuple(rooms))

    def embed(self, table: Matrix, tokens: Sequence[int], *, scale: float = 1.0) -> NativeTensor:
        if isinstance(table, LentMatrix):
            return self._lent_embed(table, tokens, scale)
        out = self._workspace.take(len(tokens), table.weight.columns)
        ids = c_tokens(tokens)
        self._call("ms_embed", table.address, ctypes.addressof(ids), len(tokens), scale, out.address)
        return out

    def rms_norm(
        self, x: NativeTensor, weight: NativeVector, eps: float, *, residual: NativeTensor | None = None
    ) -> NativeTensor:
        out = self._workspace.take(x.n, x.width)
        self._call(
            "ms_rms_norm",
            *(x.address, weight.address, eps, x.n, x.width, weight.values.size, address(residual), out.address),
        )
        return out

    def linear(
        self,
        x: NativeTensor,
        weight: Matrix,
        *,
        bias: NativeVector | None = None,
        residual: NativeTensor | None = None,
        softcap: float | None = None,
    ) -> NativeTensor:
        if isinstance(weight, LentMatrix):
            return self._lent_linear(x, weight, bias, residual, softcap)
        out = self._workspace.take(x.n, weight.weight.rows)
        x = self._input(x, weight)
        self._call(
            "ms_linear",
            *(x.address, x.n, 1, weight.address, None, None, out.address, None, None),
            *(address(bias), address(residual), softcap or 0.0, False),
        )
        return out

    def linears(self, x: NativeTensor, weights: Sequence[Matrix]) -> list[NativeTensor]:
        resident = [weight for weight in weights if isinstance(weight, NativeMatrix)]
        if len(resident) < len(weights) or len({weight.input for weight in resident}) > 1:
            return [self.linear(x, weight) for weight in weights]
        x = self._input(x, resident[0])
        outs: list[NativeTensor] = []
        for first in range(0, len(resident), 3):
            some = resident[first : first + 3]
            made = [self._workspace.take(x.n, weight.weight.rows) for weight in some]
            spare = (None,) * (3 - len(some))
            self._call(
                "ms_linear",
                *(x.address, x.n, len(some), *(weight.address for weight in some), *spare),
                *(*(out.address for out in made), *spare, None, None, 0.0, False),
            )
            outs += made
        return outs

    def gated(
        self,
        x: NativeTensor,
        gate: Matrix,
        up: Matrix,
        activation: Activation = "silu",
    ) -> NativeTensor:
        if isinstance(gate, LentMatrix) or isinstance(up, LentMatrix):
            return self._lent_gated(x, gate, up, activation) or self._gated_apart(x, gate, up, activation)
        if gate.input != up.input:
            return self._gated_apart(x, gate, up, activation)
        x = self._input(x, gate)
        out = self._workspace.take(x.n, gate.weight.rows)
        number = ACTIVATION_NUMBERS[activation]
        self._call("ms_gated", x.address, x.n, number, gate.address, up.address, out.address, False)
        return out

    def _gated_apart(
        self,
        x: NativeTensor,
        gate: Matrix,
        up: Matrix,
        activation: Activation,
    ) -> NativeTensor:
        return self.gate(self.linear(x, gate), self.linear(x, up), activation)

    def head_linears(self, x: NativeTensor, weight: AnyStack, *, transposed: bool = False) -> NativeTensor:
        stack = weight.weight
        wide, made = (stack.rows, stack.columns) if transposed else (stack.columns, stack.rows)
        assert x.width == stack.n_experts * wide and stack.scales is None
        out = self._workspace.take(x.n, stack.n_experts * made)
        if isinstance(weight, LentStack):
            self._lent_heads(x, weight, transposed, out)
            return out
        heads = stack.n_experts
        self._call("ms_head_linears", x.address, x.n, weight.address, 0, heads, transposed, out.address)
        return out

    def rotary(self, x: NativeTensor, n_heads: int, table: Rotary, start: int) -> NativeTensor:
        assert start + x.n <= len(table.cos)
        assert table.cos.flags.c_contiguous and table.sin.flags.c_contiguous
        self._keep(table)
        out = self._workspace.take(x.n, x.width)
        self._call(
            "ms_rotary",
            *(x.address, x.n, start, n_heads, x.width // n_heads, table.cos.ctypes.data, table.sin.ctypes.data),
            *(table.cos.shape[1], table.style == "interleaved", out.address),
        )
        return out

    def attention(
        self,
        q: NativeTensor,
        k: NativeTensor | None,
        v: NativeTensor | None,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: NativeVector | None = None,
        until: Sequence[int] | None = None,
    ) -> NativeTensor:
        assert isinstance(cache, NativeCache) and start + q.n <= cache.capacity
        assert v is None if k is None else (v is None) == cache.spec.latent
        ends = None if until is None else c_tokens(until)
        assert ends is None or self._recording is None
        out = self._workspace.take(q.n, spec.n_heads * cache.spec.value_dim)
        self._call(
            "ms_attention",
            *(q.address, address(k), address(v), cache.address, q.n, start, spec.n_heads),
            *(spec.scale, spec.window or 0, spec.softcap or 0.0, address(sinks)),
            *(None if ends is None else ctypes.addressof(ends), out.address),
        )
        return out

    def last(self, x: NativeTensor, rows: int) -> NativeTensor:
        return self.rows(x, x.n - rows, x.n)

    def rows(self, x: NativeTensor, start: int, stop: int) -> NativeTensor:
        return x if (start, stop) == (0, x.n) else x.rows(start, stop)

    def joined(self, parts: Sequence[NativeTensor]) -> NativeTensor:
        return self.tensor(np.concatenate([part.array() for part in parts]))

    def tensor(self, values: F32) -> NativeTensor:
        assert self._recording is None
        out = self._workspace.take(*values.shape)
        out.array()[:] = values
        return out

    def host(self, x: NativeTensor) -> F32:
        return x.array()
