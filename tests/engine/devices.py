"""Every implementation of `Ops` that the tests hold to their oracles."""

from __future__ import annotations

from collections.abc import Callable

from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps

DEVICES: dict[str, Callable[[], Ops]] = {
    "reference": ReferenceOps,
    "plain": PlainOps,
    "native": lambda: NativeOps(threads=2),
}
CONTRACT = ("plain", "native")
"""Those whose results follow CONTRACT.md to the bit."""
