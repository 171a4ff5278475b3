"""The CPU: C kernels, one shared library per instruction set, chosen at load and called through ctypes."""

from engine.kernels.native.library import available
from engine.kernels.native.ops import NativeOps

__all__ = ["NativeOps", "available"]
