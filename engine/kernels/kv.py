"""The number formats of the key-value cache and the bytes that they take (CONTRACT.md, section 9)."""

from __future__ import annotations

from engine.errors import SettingsError
from engine.kernels.ops import CacheSpec
from engine.types import CACHE_KINDS

BLOCK = 32
"""Elements of a q8_0 block: 2 bytes of scale, 32 of codes."""

CHUNK = 64
"""Positions that attention takes together; a cache holds whole chunks of them."""


def positions(capacity: int) -> int:
    """Positions that a cache for `capacity` of them has memory for."""
    return -(-capacity // CHUNK) * CHUNK


def row_bytes(spec: CacheSpec, kind: str) -> tuple[int, int]:
    """Bytes of one head's key and of one head's value at one position, stored as `kind`; none for the value where it is
    part of the key.

    Raises SettingsError for a kind that is not known, or that cannot hold vectors of these widths.
    """
    if kind not in CACHE_KINDS:
        raise SettingsError(f"The key-value cache {kind!r} is not one of those known: {', '.join(CACHE_KINDS)}.")
    widths = spec.key_dim, spec.value_dim
    if kind == "q8_0":
        if not holds(spec, kind):
            raise SettingsError(
                f"A q8_0 key-value cache stores blocks of {BLOCK}, but this model's keys and values are {widths[0]} "
                f"and {widths[1]} wide; use the f16 cache."
            )
        key, value = (width // BLOCK * 34 for width in widths)
    else:
        key, value = (width * (2 if kind == "f16" else 4) for width in widths)
    return key, 0 if spec.latent else value


def holds(spec: CacheSpec, kind: str) -> bool:
    """Whether keys and values of this layer can be stored as `kind`."""
    return kind != "q8_0" or (spec.key_dim % BLOCK == 0 and (spec.latent or spec.value_dim % BLOCK == 0))
