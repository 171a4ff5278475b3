"""Recurrent layers: their states, and the operations that move them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.address_space import raise_it
from engine.buffers import aligned
from engine.errors import BudgetError
from engine.kernels.native.device import Device
from engine.kernels.native.pointwise import ACTIVATION_NUMBERS, NativeVector
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Activation, LayerCache
from engine.kernels.state import NORM_EPS, StateSpec


@dataclass(frozen=True, eq=False)
class NativeState:
    """One layer's recurrent state: its inputs, then its memory as `ms_delta_rule` lays it out.

    `capacity` is what it was asked for and bounds nothing.
    """

    spec: StateSpec
    capacity: int
    values: npt.NDArray[np.float32]
    kind: str = "f32"

    @staticmethod
    def made(spec: StateSpec, capacity: int) -> NativeState:
        """Raises BudgetError where there is no memory for it."""
        try:
            return NativeState(spec, capacity, aligned(spec.nbytes).view(np.float32))
        except MemoryError as error:
            raise BudgetError(
                f"There is no memory for the states of the model's recurrent layers: {raise_it()}close other programs."
            ) from error

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def inputs(self) -> int:
        """The address of the inputs."""
        return self.values.ctypes.data

    @property
    def memory(self) -> int:
        """The address of the memory."""
        rows, channels = self.spec.inputs
        return self.inputs + rows * channels * 4


class Recurrent(Device):
    """The part of `NativeOps` that recurrent layers need."""

    def convolved(
        self, x: NativeTensor, taps: NativeVector, state: LayerCache, start: int, activation: Activation
    ) -> NativeTensor:
        assert isinstance(state, NativeState) and taps.values.shape == (state.spec.channels, state.spec.taps)
        out = self._workspace.take(x.n, x.width)
        self._call(
            "ms_convolve",
            *(x.address, x.n, x.width, taps.address, state.spec.taps, state.inputs, start),
            *(ACTIVATION_NUMBERS[activation], out.address),
        )
        return out

    def delta_rule(
        self,
        x: NativeTensor,
        a: NativeTensor,
        b: NativeTensor,
        rate: NativeVector,
        bias: NativeVector,
        state: LayerCache,
        start: int,
    ) -> NativeTensor:
        assert isinstance(state, NativeState)
        spec = state.spec
        assert a.width == b.width == rate.values.size == bias.values.size == spec.n_heads
        out = self._workspace.take(x.n, spec.n_heads * spec.value_dim)
        self._call(
            "ms_delta_rule",
            *(x.address, a.address, b.address, rate.address, bias.address, state.memory, x.n, start),
            *(spec.n_key_heads, spec.n_heads, spec.key_dim, spec.value_dim, NORM_EPS, spec.scale, out.address),
        )
        return out

    def copy_state(self, source: LayerCache, target: LayerCache) -> None:
        assert isinstance(source, NativeState) and isinstance(target, NativeState)
        target.values[:] = source.values
