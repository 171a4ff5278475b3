"""The operations in plain torch over decoded weights: the judge of accuracy, bound to no contract."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import torch

from engine import weights
from engine.errors import NumericsError, SettingsError
from engine.kernels.ops import AttentionSpec, CacheSpec, LayerCache, Rotary, Weight

Tensor = torch.Tensor
CACHE_FORMATS: Final = MappingProxyType({"f16": torch.float16, "f32": torch.float32})


class ReferenceCache:
    """Keys [capacity, n_kv_heads, key_dim] and values [capacity, n_kv_heads, value_dim] as they are stored."""

    def __init__(self, spec: CacheSpec, capacity: int, kind: str) -> None:
        if kind not in CACHE_FORMATS:
            known = ", ".join(CACHE_FORMATS)
            raise SettingsError(f"The key-value cache {kind!r} is not one of those known: {known}.")
        self.spec, self.capacity, self.kind = spec, capacity, kind
        self.keys = torch.zeros(capacity, spec.n_kv_heads, spec.key_dim, dtype=CACHE_FORMATS[kind])
        self.values = torch.zeros(capacity, spec.n_kv_heads, spec.value_dim, dtype=CACHE_FORMATS[kind])
        self.nbytes = self.keys.nbytes + self.values.nbytes

    def store(self, k: Tensor, v: Tensor, start: int) -> None:
        """Round the rows of `k` and `v` into positions `start …`. Raises NumericsError where one becomes infinite."""
        for what, rows, kept in (("key", k, self.keys), ("value", v, self.values)):
            place = kept[start : start + len(rows)]
            place.copy_(rows.reshape(place.shape))
            if bool((place.isinf() & rows.reshape(place.shape).isfinite()).any()):
                raise NumericsError(
                    f"A {what} is too large for the {self.kind} key-value cache; load the model with an f32 cache."
                )


class ReferenceOps:
    """Computes in `dtype` throughout; keys and values alone are rounded, to the cache's number format."""

    threads = 1
    nbytes = 0

    def __init__(self, dtype: Literal["float32", "float64"] = "float32") -> None:
        self.name = f"reference-{dtype}"
        self._dtype: torch.dtype = getattr(torch, dtype)

    def matrix(self, weight: Weight) -> Tensor:
        return torch.tensor(weights.get(weight.encoding).decode(weight.data), dtype=self._dtype)

    def vector(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.tensor(values, dtype=self._dtype)

    def cache(self, spec: CacheSpec, capacity: int, kind: str) -> ReferenceCache:
        return ReferenceCache(spec, capacity, kind)

    def embed(self, table: Tensor, tokens: Sequence[int]) -> Tensor:
        return table[torch.tensor(tokens)]

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        groups = x.reshape(len(x), -1, len(weight))
        scale = torch.rsqrt(groups.square().mean(dim=-1, keepdim=True) + eps)
        return (groups * scale * weight).reshape(x.shape)

    def linear(
        self, x: Tensor, weight: Tensor, *, bias: Tensor | None = None, residual: Tensor | None = None
    ) -> Tensor:
        y = torch.nn.functional.linear(x, weight, bias)
        return y if residual is None else y + residual

    def linears(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        return [self.linear(x, weight) for weight in weights]

    def gated_silu(self, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return torch.nn.functional.silu(self.linear(x, gate)) * self.linear(x, up)

    def rotary(self, x: Tensor, n_heads: int, table: Rotary, start: int) -> Tensor:
        n = len(x)
        cos = torch.tensor(table.cos[start : start + n], dtype=self._dtype)[:, None]
        sin = torch.tensor(table.sin[start : start + n], dtype=self._dtype)[:, None]
        half = cos.shape[-1]
        if table.style == "interleaved":
            first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        else:
            first, second = slice(0, half), slice(half, 2 * half)
        heads = x.reshape(n, n_heads, -1)
        a, b = heads[..., first], heads[..., second]
        turned = heads.clone()
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
        return turned.reshape(x.shape)

    def attention(self, q: Tensor, k: Tensor, v: Tensor, cache: LayerCache, spec: AttentionSpec, start: int) -> Tensor:
        assert isinstance(cache, ReferenceCache)
        n, end = len(q), start + len(q)
        cache.store(k, v, start)
        shared = spec.n_heads // cache.spec.n_kv_heads
        keys = cache.keys[:end].to(self._dtype).repeat_interleave(shared, dim=1)
        values = cache.values[:end].to(self._dtype).repeat_interleave(shared, dim=1)
        queries = q.reshape(n, spec.n_heads, cache.spec.key_dim) * spec.scale
        scores = torch.einsum("ihd,jhd->hij", queries, keys)
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        own, other = torch.arange(start, end)[:, None], torch.arange(end)
        hidden = other > own
        if spec.window is not None:
            hidden |= other <= own - spec.window
        shares = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
        return torch.einsum("hij,jhd->ihd", shares, values).reshape(n, -1)

    def last(self, x: Tensor, rows: int) -> Tensor:
        return x[len(x) - rows :]

    def rows(self, x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop]

    def host(self, x: Tensor) -> npt.NDArray[np.float32]:
        return x.to(torch.float32).numpy()

    def close(self) -> None:
        """Nothing is held."""
