"""Weights as the native kernels take them: described for C once where they are in memory, else window by window."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.buffers import U8
from engine.kernels.lending import Lent
from engine.kernels.native.library import CStack, CWeight
from engine.kernels.native.pointwise import NativeVector
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Stack, Weight
from engine.weights.tq import Ternary

F32 = npt.NDArray[np.float32]


def address(x: NativeVector | NativeTensor | None) -> int | None:
    return None if x is None else x.address


def described(
    data: U8, columns: int, encoding: int, scale: float | None, first: int, total: int, row_scales: F32 | None = None
) -> CWeight:
    """Rows `first …` of a matrix of `total`: `data` [rows, row_bytes] and `row_scales` [rows] must stay alive."""
    scales = None if row_scales is None else row_scales.ctypes.data
    factor = 1.0 if scale is None else scale
    return CWeight(data.ctypes.data, len(data), columns, data.strides[0], encoding, scales, factor, first, total)


@dataclass(frozen=True)
class Part:
    """Some rows for one call, and the scales that they point at."""

    c: CWeight
    row_scales: F32 | None

    @property
    def address(self) -> int:
        return ctypes.addressof(self.c)


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

    def part(self, first: int, data: U8) -> Part:
        """Rows `first …`, whose bytes are `data`."""
        scales = None if self.row_scales is None else self.row_scales[first : first + len(data)]
        weight = self.weight
        return Part(described(data, weight.columns, self.c.encoding, weight.scale, first, weight.rows, scales), scales)


@dataclass(eq=False)
class LentMatrix:
    """A weight whose rows are lent, and its encoding's number for C.

    `ternary` is that of a weight that takes a token's int8, until a row with several scales is seen.
    """

    weight: Weight
    lent: Lent
    encoding: int
    ternary: Ternary | None

    @property
    def input(self) -> str:
        """As for a weight in memory."""
        return self.weight.activations if self.ternary is None else "int8"

    def part(self, first: int, data: U8) -> Part | None:
        """As for a weight in memory; `None` where the rows show that `input` was another than was thought."""
        scales = None
        if self.ternary is not None:
            scales = self.ternary.row_scales(data)
            if scales is None:
                self.ternary = None
                return None
        weight = self.weight
        return Part(described(data, weight.columns, self.encoding, weight.scale, first, weight.rows, scales), scales)


Matrix = NativeMatrix | LentMatrix


@dataclass(frozen=True)
class NativeStack:
    """The bytes of a mixture's experts, which must stay alive as long as this, and their description for C."""

    weight: Stack
    c: CStack
    address: int

    def part(self, expert: int, first: int, data: U8) -> CWeight:
        return _of_expert(self.weight, self.c.first.encoding, expert, first, data)


@dataclass(frozen=True)
class LentStack:
    """A stack that is lent, and its encoding's number for C."""

    weight: Stack
    lent: Lent
    encoding: int

    def part(self, expert: int, first: int, data: U8) -> CWeight:
        return _of_expert(self.weight, self.encoding, expert, first, data)


AnyStack = NativeStack | LentStack


def _of_expert(stack: Stack, encoding: int, expert: int, first: int, data: U8) -> CWeight:
    """Rows `first …` of one expert."""
    scale = None if stack.scales is None else float(stack.scales[expert])
    return described(data, stack.columns, encoding, scale, first, stack.rows)


@dataclass(frozen=True)
class NativeRouting:
    """Per token the chosen experts, int32 [n, k] in a buffer of as many float32, and their weights [n, k]."""

    ids: NativeTensor
    weights: NativeTensor
