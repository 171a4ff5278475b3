"""`Ops` over the C kernels: numpy buffers, ctypes calls, and a pool of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from engine.buffers import aligned
from engine.cores import default_threads
from engine.errors import BudgetError, NumericsError, SettingsError, UnsupportedModelError
from engine.kernels.kv import positions, row_bytes
from engine.kernels.native import library
from engine.kernels.native.library import CCache, CWeight
from engine.kernels.native.recording import LONGEST, Program, Recording, c_tokens
from engine.kernels.native.tensors import NativeTensor, Workspace
from engine.kernels.ops import Activation, AttentionSpec, CacheSpec, LayerCache, Pass, Rotary, Tensor, Weight

F32 = npt.NDArray[np.float32]
MAX_THREADS = 256
NO_MEMORY, OVERFLOW = 1, 2
CACHE_NUMBERS: Final = MappingProxyType({"f32": 0, "f16": 1, "q8_0": 2})
"""`ms_cache_kind` by name."""
ACTIVATION_NUMBERS: Final[Mapping[Activation, int]] = MappingProxyType({"silu": 0, "gelu_tanh": 1, "gelu_erf": 2})
"""`ms_activation` by name."""


@dataclass(frozen=True)
class NativeMatrix:
    """A weight's bytes, which must stay alive as long as this, and their description for C."""

    weight: Weight
    c: CWeight
    address: int


@dataclass(frozen=True)
class NativeVector:
    values: F32
    address: int


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


class NativeOps:
    """The CPU. Results follow CONTRACT.md to the bit, whatever the thread count or the instruction set.

    Not for use by two threads at once. Raises SettingsError for a thread count or an instruction set that cannot be.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        self._pool: int | None = None
        threads = default_threads() if threads is None else threads
        if not 1 <= threads <= MAX_THREADS:
            raise SettingsError(f"The number of threads is {threads}; it must be between 1 and {MAX_THREADS}.")
        self.isa, self._lib = library.load(isa)
        self.name, self.threads = f"native ({self.isa})", threads
        self._encodings = library.encodings(self._lib)
        self._workspace = Workspace()
        self._workspaces = WeakSet([self._workspace])
        self._recording: Recording | None = None
        self._rotary: dict[int, tuple[Rotary, int, int]] = {}
        self._pool = self._lib.ms_pool_new(threads)
        if not self._pool:
            raise BudgetError(f"The system refused to start {threads} threads; ask for fewer with --threads.")

    def close(self) -> None:
        if self._pool:
            self._lib.ms_pool_free(self._pool)
            self._pool = None

    def __del__(self) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes held for activations."""
        return sum(workspace.nbytes for workspace in self._workspaces)

    def matrix(self, weight: Weight) -> NativeMatrix:
        number = self._encodings.get(weight.encoding)
        if number is None:
            raise UnsupportedModelError(
                f"The weight {weight.name} is in {weight.encoding}, for which the CPU engine has no kernel yet; "
                f"it has: {', '.join(self._encodings)}."
            )
        data = weight.data
        c = CWeight(data.ctypes.data, weight.rows, weight.columns, data.strides[0], number)
        return NativeMatrix(weight, c, ctypes.addressof(c))

    def vector(self, values: F32) -> NativeVector:
        values = np.ascontiguousarray(values, np.float32)
        return NativeVector(values, values.ctypes.data)

    def cache(self, spec: CacheSpec, capacity: int, kind: str) -> NativeCache:
        sizes = row_bytes(spec, kind)
        try:
            keys, values = (aligned(spec.n_kv_heads * positions(capacity) * size) for size in sizes)
        except MemoryError as error:
            raise BudgetError(
                f"There is no memory for a context of {capacity} tokens; ask for a shorter one."
            ) from error
        c = CCache(
            keys.ctypes.data, values.ctypes.data, capacity, spec.n_kv_heads, spec.key_dim, spec.value_dim,
            CACHE_NUMBERS[kind],
        )  # fmt: skip
        nbytes = keys.nbytes + values.nbytes
        return NativeCache(spec, capacity, kind, nbytes, c, ctypes.addressof(c), (keys, values))

    def recorded(self, forward: Pass) -> Pass:
        programs: dict[int, Program] = {}

        def run(tokens: Sequence[int], start: int) -> Tensor:
            if len(tokens) > LONGEST:
                return forward(tokens, start)
            program = programs.get(len(tokens))
            if program is None:
                program = programs[len(tokens)] = self._record(forward, tokens, start)
            else:
                self._check(program.run(self._lib, self._pool, tokens, start))
            return program.output

        return run

    def _record(self, forward: Pass, tokens: Sequence[int], start: int) -> Program:
        """Run the pass and keep its calls."""
        own, self._recording = self._workspace, Recording()
        try:
            self._workspace = self._recording.workspace
            self._workspaces.add(self._workspace)
            return self._recording.finish(forward(tokens, start))
        finally:
            self._workspace, self._recording = own, None

    def _call(self, function: str, *arguments: int | float | None) -> None:
        self._check(getattr(self._lib, function)(self._pool, *arguments))
        if self._recording is not None:
            self._recording.calls.append(library.recorded_call(function, arguments))

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
        self._call(
            "ms_linear",
            *(x.address, x.n, 1, weight.address, None, None, out.address, None, None),
            *(_address(bias), _address(residual), softcap or 0.0),
        )
        return out

    def linears(self, x: NativeTensor, weights: Sequence[NativeMatrix]) -> list[NativeTensor]:
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
        out = self._workspace.take(x.n, gate.weight.rows)
        self._call("ms_gated", x.address, x.n, ACTIVATION_NUMBERS[activation], gate.address, up.address, out.address)
        return out

    def rotary(self, x: NativeTensor, n_heads: int, table: Rotary, start: int) -> NativeTensor:
        _, cosines, sines = self._rotary.get(id(table)) or self._register(table)
        assert start + x.n <= len(table.cos)
        out = self._workspace.take(x.n, x.width)
        self._call(
            "ms_rotary",
            *(x.address, x.n, start, n_heads, x.width // n_heads, cosines, sines),
            *(table.cos.shape[1], table.style == "interleaved", out.address),
        )
        return out

    def _register(self, table: Rotary) -> tuple[Rotary, int, int]:
        for values in (table.cos, table.sin):
            assert values.dtype == np.float32 and values.flags.c_contiguous
        entry = (table, table.cos.ctypes.data, table.sin.ctypes.data)
        self._rotary[id(table)] = entry
        return entry

    def attention(
        self,
        q: NativeTensor,
        k: NativeTensor,
        v: NativeTensor,
        cache: LayerCache,
        spec: AttentionSpec,
        start: int,
        sinks: NativeVector | None = None,
    ) -> NativeTensor:
        assert isinstance(cache, NativeCache) and start + q.n <= cache.capacity
        out = self._workspace.take(q.n, spec.n_heads * cache.spec.value_dim)
        self._call(
            "ms_attention",
            *(q.address, k.address, v.address, cache.address, q.n, start, spec.n_heads),
            *(spec.scale, spec.window or 0, spec.softcap or 0.0, _address(sinks), out.address),
        )
        return out

    def last(self, x: NativeTensor, rows: int) -> NativeTensor:
        return self.rows(x, x.n - rows, x.n)

    def rows(self, x: NativeTensor, start: int, stop: int) -> NativeTensor:
        return x if (start, stop) == (0, x.n) else x.rows(start, stop)

    def host(self, x: NativeTensor) -> F32:
        return x.array()

    def _check(self, status: int) -> None:
        if status == OVERFLOW:
            raise NumericsError(
                "A key or value is too large for the key-value cache's number format; load the model with an f32 cache."
            )
        if status == NO_MEMORY:
            raise BudgetError("There was no memory left for this step; use a smaller chunk or a shorter context.")
        assert status == 0, status
