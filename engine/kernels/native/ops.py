"""`Ops` over the C kernels: numpy buffers, ctypes calls, and a pool of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.buffers import aligned
from engine.errors import BudgetError, UnsupportedModelError
from engine.kernels.kv import positions, row_bytes
from engine.kernels.native import library
from engine.kernels.native.experts import Experts, NativeStack
from engine.kernels.native.library import CCache, CStack, CWeight
from engine.kernels.native.pointwise import ACTIVATION_NUMBERS, NativeVector, Pointwise
from engine.kernels.native.recording import c_tokens
from engine.kernels.native.recurrent import NativeState, Recurrent
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation, AttentionSpec, CacheSpec, LayerCache, LayerSpec, Rotary, Stack, Weight
from engine.kernels.state import StateSpec
from engine.kernels.ternary import row_scales

F32 = npt.NDArray[np.float32]
CACHE_NUMBERS: Final = MappingProxyType({"f32": 0, "f16": 1, "q8_0": 2})
"""`ms_cache_kind` by name."""


@dataclass(frozen=True)
class NativeMatrix:
    """A weight's bytes, which must stay alive as long as this, and their description for C; the scales of its rows
    where its products are those of ternary codes with a token's int8."""

    weight: Weight
    c: CWeight
    address: int
    row_scales: F32 | None

    @property
    def input(self) -> str:
        """What it is multiplied with: weights of one call agree in that."""
        return self.weight.activations if self.row_scales is None else "int8"


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


def _address(x: NativeVector | NativeTensor | None) -> int | None:
    return None if x is None else x.address


class NativeOps(Pointwise, Experts, Recurrent):
    """The CPU. Results follow CONTRACT.md to the bit, whatever the thread count or the instruction set.

    Not for use by two threads at once. Raises SettingsError for a thread count or an instruction set that cannot be.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        super().__init__(threads, isa)
        self._encodings = library.encodings(self._lib)

    def matrix(self, weight: Weight) -> NativeMatrix:
        c, scales = self._described(weight), row_scales(weight)
        c.row_scales = None if scales is None else scales.ctypes.data
        c.scale = 1.0 if weight.scale is None else weight.scale
        return NativeMatrix(weight, c, ctypes.addressof(c), scales)

    def stack(self, weight: Stack) -> NativeStack:
        scales = None if weight.scales is None else weight.scales.ctypes.data
        c = CStack(self._described(weight), weight.n_experts, weight.data.strides[0], scales)
        return NativeStack(weight, c, ctypes.addressof(c))

    def _described(self, weight: Weight | Stack) -> CWeight:
        """The matrix, or the first of the stack."""
        number = self._encodings.get(weight.encoding)
        if number is None:
            raise UnsupportedModelError(
                f"The weight {weight.name} is in {weight.encoding}, for which the CPU engine has no kernel yet; "
                f"it has: {', '.join(self._encodings)}."
            )
        data = weight.data
        return CWeight(data.ctypes.data, weight.rows, weight.columns, data.strides[-2], number, None, 1.0)

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
                f"There is no memory for a context of {capacity} tokens; ask for a shorter one."
            ) from error
        c = CCache(
            rooms[0].ctypes.data, rooms[-1].ctypes.data, capacity, spec.n_kv_heads, spec.key_dim, spec.value_dim,
            CACHE_NUMBERS[kind],
        )  # fmt: skip
        nbytes = sum(room.nbytes for room in rooms)
        return NativeCache(spec, capacity, kind, nbytes, c, ctypes.addressof(c), tuple(rooms))

    def embed(self, table: NativeMatrix, tokens: Sequence[int], *, scale: float = 1.0) -> NativeTensor:
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
            *(x.address, weight.address, eps, x.n, x.width, weight.values.size, _address(residual), out.address),
        )
        return out

    def linear(
        self,
        x: NativeTensor,
        weight: NativeMatrix,
        *,
        bias: NativeVector | None = None,
        residual: NativeTensor | None = None,
        softcap: float | None = None,
    ) -> NativeTensor:
        out = self._workspace.take(x.n, weight.weight.rows)
        x = self._input(x, weight)
        self._call(
            "ms_linear",
            *(x.address, x.n, 1, weight.address, None, None, out.address, None, None),
            *(_address(bias), _address(residual), softcap or 0.0),
        )
        return out

    def linears(self, x: NativeTensor, weights: Sequence[NativeMatrix]) -> list[NativeTensor]:
        if len({weight.input for weight in weights}) > 1:
            return [self.linear(x, weight) for weight in weights]
        x = self._input(x, weights[0])
        outs: list[NativeTensor] = []
        for first in range(0, len(weights), 3):
            some = weights[first : first + 3]
            made = [self._workspace.take(x.n, weight.weight.rows) for weight in some]
            spare = (None,) * (3 - len(some))
            self._call(
                "ms_linear",
                *(x.address, x.n, len(some), *(weight.address for weight in some), *spare),
                *(*(out.address for out in made), *spare, None, None, 0.0),
            )
            outs += made
        return outs

    def gated(
        self, x: NativeTensor, gate: NativeMatrix, up: NativeMatrix, activation: Activation = "silu"
    ) -> NativeTensor:
        if gate.input != up.input:
            return self.gate(self.linear(x, gate), self.linear(x, up), activation)
        x = self._input(x, gate)
        out = self._workspace.take(x.n, gate.weight.rows)
        self._call("ms_gated", x.address, x.n, ACTIVATION_NUMBERS[activation], gate.address, up.address, out.address)
        return out

    def _input(self, x: NativeTensor, weight: NativeMatrix) -> NativeTensor:
        """x as a weight that rounds tokens is to have it, where C does not see to that itself."""
        if weight.input != "token":
            return x
        out = self._workspace.take(x.n, x.width)
        self._call("ms_round_tokens", x.address, x.n, x.width, out.address)
        return out

    def head_linears(self, x: NativeTensor, weight: NativeStack, *, transposed: bool = False) -> NativeTensor:
        stack = weight.weight
        wide, made = (stack.rows, stack.columns) if transposed else (stack.columns, stack.rows)
        assert x.width == stack.n_experts * wide and stack.scales is None
        out = self._workspace.take(x.n, stack.n_experts * made)
        self._call("ms_head_linears", x.address, x.n, weight.address, transposed, out.address)
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
            *(q.address, _address(k), _address(v), cache.address, q.n, start, spec.n_heads),
            *(spec.scale, spec.window or 0, spec.softcap or 0.0, _address(sinks)),
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
