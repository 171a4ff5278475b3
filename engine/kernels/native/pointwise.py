"""Operations on single elements, and those that move them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.kernels.native.device import Device
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation

ACTIVATION_NUMBERS: Final[Mapping[Activation, int]] = MappingProxyType(
    {"silu": 0, "gelu_tanh": 1, "gelu_erf": 2, "sigmoid": 3, "relu_squared": 4, "swiglu_clamped": 5}
)
"""`ms_activation` by name."""


@dataclass(frozen=True)
class NativeVector:
    values: npt.NDArray[np.float32]
    address: int


class Pointwise(Device):
    """The part of `NativeOps` without weights but those of norms."""

    def layer_norm(self, x: NativeTensor, weight: NativeVector, bias: NativeVector, eps: float) -> NativeTensor:
        out = self._workspace.take(x.n, x.width)
        self._call("ms_layer_norm", x.address, weight.address, bias.address, eps, x.n, x.width, out.address)
        return out

    def add(self, x: NativeTensor, y: NativeTensor) -> NativeTensor:
        assert (x.n, x.width) == (y.n, y.width)
        out = self._workspace.take(x.n, x.width)
        self._call("ms_add", x.address, y.address, x.n * x.width, out.address)
        return out

    def scaled(self, x: NativeTensor, factor: float) -> NativeTensor:
        out = self._workspace.take(x.n, x.width)
        self._call("ms_scale", x.address, factor, x.n * x.width, out.address)
        return out

    def activate(self, x: NativeTensor, activation: Activation) -> NativeTensor:
        assert activation != "swiglu_clamped"
        out = self._workspace.take(x.n, x.width)
        self._call("ms_activate", x.address, ACTIVATION_NUMBERS[activation], x.n * x.width, out.address)
        return out

    def gate(self, x: NativeTensor, y: NativeTensor, activation: Activation) -> NativeTensor:
        assert x.n == y.n and y.width % x.width == 0
        out = self._workspace.take(y.n, y.width)
        self._call(
            "ms_gate",
            *(x.address, y.address, ACTIVATION_NUMBERS[activation], x.n * x.width, y.width // x.width, out.address),
        )
        return out

    def pick(self, x: NativeTensor, groups: int, start: int, stop: int) -> NativeTensor:
        run, count = x.width // groups, x.n * groups
        out = self._workspace.take(x.n, groups * (stop - start))
        self._call("ms_splice", x.address, run, start, stop - start, None, 0, 0, 0, count, out.address)
        return out

    def spliced(self, x: NativeTensor, y: NativeTensor, groups: int) -> NativeTensor:
        runs, count = (x.width // groups, y.width // groups), x.n * groups
        out = self._workspace.take(x.n, x.width + y.width)
        self._call("ms_splice", x.address, runs[0], 0, runs[0], y.address, runs[1], 0, runs[1], count, out.address)
        return out

    def folded(self, x: NativeTensor, rows: int) -> NativeTensor:
        assert x.n % rows == 0
        return x.shaped(x.n // rows, x.width * rows)
