"""The numerics contract in numpy: slow, readable, and the judge of every fast kernel's bits."""

from engine.kernels.plain.functions import exp, uniform
from engine.kernels.plain.ops import PlainOps

__all__ = ["PlainOps", "exp", "uniform"]
