"""`Ops` over the C kernels: numpy buffers, ctypes calls, and a pool of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import psutil

from engine import weights
from engine.buffers import aligned
from engine.errors import BudgetError, NumericsError, SettingsError, UnsupportedModelError
from engine.kernels.native import library
from engine.kernels.native.library import CCache, CWeight
from engine.kernels.native.tensors import NativeTensor, Workspace
from engine.kernels.ops import AttentionSpec, CacheSpec, LayerCache, Rotary, Weight

F32 = npt.NDArray[np.float32]
MAX_THREADS = 256
NO_MEMORY, OVERFLOW = 1, 2


@dataclass(frozen=True)
class NativeMatrix:
    """A weight's bytes, which must stay alive as long as this, and their description for C."""

    weight: Weight
    c: CWeight
    reference: object


@dataclass(frozen=True)
class NativeVector:
    values: F32
    address: int


@dataclass(frozen=True)
class NativeCache:
    """One layer's keys and values, [n_kv_heads][capacity][dim] in `kind`; untouched pages take no memory."""

    spec: CacheSpec
    capacity: int
    kind: str
    nbytes: int
    c: CCache
    reference: object
    buffers: tuple[npt.NDArray[np.uint8], ...] = field(repr=False)


def default_threads() -> int:
    """The number of physical cores that this process may use."""
    try:
        allowed = len(psutil.Process().cpu_affinity())
    except (AttributeError, psutil.Error):
        allowed = psutil.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed, MAX_THREADS))


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
        return self._workspace.nbytes

    def matrix(self, weight: Weight) -> NativeMatrix:
        number = self._encodings.get(weight.encoding)
        if number is None:
            raise UnsupportedModelError(
                f"The weight {weight.name} is in {weight.encoding}, for which the CPU engine has no kernel yet; "
                f"it has: {', '.join(self._encodings)}."
            )
        data = weight.data
        c = CWeight(data.ctypes.data, weight.rows, weight.columns, data.strides[0], number)
        return NativeMatrix(weight, c, ctypes.byref(c))

    def vector(self, values: F32) -> NativeVector:
        values = np.ascontiguousarray(values, np.float32)
        return NativeVector(values, values.ctypes.data)

    def cache(self, spec: CacheSpec, capacity: int, kind: str) -> NativeCache:
        if kind not in ("f16", "f32"):
            raise SettingsError(f"The cache type {kind!r} is not known; use f16 or f32.")
        size = 2 if kind == "f16" else 4
        try:
            keys, values = (aligned(spec.n_kv_heads * capacity * dim * size) for dim in (spec.key_dim, spec.value_dim))
        except MemoryError as error:
            raise BudgetError(
                f"There is no memory for a context of {capacity} tokens; ask for a shorter one."
            ) from error
        c = CCache(
            keys.ctypes.data, values.ctypes.data, capacity, spec.n_kv_heads, spec.key_dim, spec.value_dim, size == 2
        )  # fmt: skip
        nbytes = keys.nbytes + values.nbytes
        return NativeCache(spec, capacity, kind, nbytes, c, ctypes.byref(c), (keys, values))

    def embed(self, table: NativeMatrix, tokens: Sequence[int]) -> NativeTensor:
        out = self._workspace.take(len(tokens), table.weight.columns)
        out.array()[:] = weights.get(table.weight.encoding).decode(table.weight.data[np.asarray(tokens)])
        return out

    def rms_norm(self, x: NativeTensor, weight: NativeVector, eps: float) -> NativeTensor:
        out = self._workspace.take(x.n, x.width)
        self._lib.ms_rms_norm(
            self._pool, x.address, weight.address, eps, x.n, x.width, weight.values.size, out.address
        )  # fmt: skip
        return out

    def linear(
        self,
        x: NativeTensor,
        weight: NativeMatrix,
        *,
        bias: NativeVector | None = None,
        residual: NativeTensor | None = None,
    ) -> NativeTensor:
        out = self._workspace.take(x.n, weight.weight.rows)
        self._check(
            self._lib.ms_linear(
                *(self._pool, x.address, x.n, 1, weight.reference, None, None, out.address, None, None),
                *(bias and bias.address, residual and residual.address),
            )
        )
        return out

    def linears(self, x: NativeTensor, weights: Sequence[NativeMatrix]) -> list[NativeTensor]:
        outs: list[NativeTensor] = []
        for first in range(0, len(weights), 3):
            some = weights[first : first + 3]
            made = [self._workspace.take(x.n, weight.weight.rows) for weight in some]
            spare = (None,) * (3 - len(some))
            self._check(
                self._lib.ms_linear(
                    *(self._pool, x.address, x.n, len(some), *(weight.reference for weight in some), *spare),
                    *(*(out.address for out in made), *spare, None, None),
                )
            )
            outs += made
        return outs

    def gated_silu(self, x: NativeTensor, gate: NativeMatrix, up: NativeMatrix) -> NativeTensor:
        out = self._workspace.take(x.n, gate.weight.rows)
        self._check(self._lib.ms_gated_silu(self._pool, x.address, x.n, gate.reference, up.reference, out.address))
        return out

    def rotary(self, x: NativeTensor, n_heads: int, table: Rotary, start: int) -> NativeTensor:
        _, cosines, sines = self._rotary.get(id(table)) or self._register(table)
        out = self._workspace.take(x.n, x.width)
        half = table.cos.shape[1]
        skipped = start * half * 4
        self._lib.ms_rotary(
            *(self._pool, x.address, x.n, n_heads, x.width // n_heads, cosines + skipped, sines + skipped),
            *(half, table.style == "interleaved", out.address),
        )
        return out

    def _register(self, table: Rotary) -> tuple[Rotary, int, int]:
        for values in (table.cos, table.sin):
            assert values.dtype == np.float32 and values.flags.c_contiguous
        entry = (table, table.cos.ctypes.data, table.sin.ctypes.data)
        self._rotary[id(table)] = entry
        return entry

    def attention(
        self, q: NativeTensor, k: NativeTensor, v: NativeTensor, cache: LayerCache, spec: AttentionSpec, start: int
    ) -> NativeTensor:
        assert isinstance(cache, NativeCache) and start + q.n <= cache.capacity
        out = self._workspace.take(q.n, spec.n_heads * cache.spec.value_dim)
        self._check(
            self._lib.ms_attention(
                *(self._pool, q.address, k.address, v.address, cache.reference, q.n, start, spec.n_heads),
                *(spec.scale, spec.window or 0, spec.softcap or 0.0, out.address),
            )
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
            raise NumericsError("A key or value is too large for an f16 cache; load the model with an f32 cache.")
        if status == NO_MEMORY:
            raise BudgetError("There was no memory left for this step; use a smaller chunk or a shorter context.")
