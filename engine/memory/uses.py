"""Weights on paper: what is known of them without their bytes, and how a pass uses them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from engine import weights
from engine.kernels.native.scratch import Shape
from engine.kernels.ops import InputRounding
from engine.weights.tq import Ternary

Way = Literal["walk", "rows", "experts", "vector"]
"""How a pass uses weights: every row from first to last, several matrices side by side; single rows; those experts that
are chosen, of their gate, up and down; or as numbers that are always in memory."""


@dataclass(frozen=True)
class PaperWeight:
    """`rows` rows from row `first` on of a tensor, or of each of its `matrices`."""

    tensor: str
    encoding: str
    rows: int
    columns: int
    first: int = 0
    matrices: int = 1
    activations: InputRounding = "blocks"

    @property
    def row_bytes(self) -> int:
        encoding = weights.get(self.encoding)
        return self.columns // encoding.block * encoding.block_bytes

    @property
    def nbytes(self) -> int:
        """Of one matrix."""
        return self.rows * self.row_bytes

    @cached_property
    def shape(self) -> Shape:
        return Shape(self.encoding, self.rows, self.columns, self.matrices)

    @cached_property
    def input(self) -> str:
        """What it is multiplied with, as `NativeMatrix.input`; ternary rows are taken to have one scale each."""
        ternary = self.activations == "token" and isinstance(weights.get(self.encoding), Ternary)
        return "int8" if ternary else self.activations


@dataclass(frozen=True)
class PaperVector:
    """A vector of a tensor, or one that a model has made, whose name is empty."""

    tensor: str
    nbytes: int


@dataclass(frozen=True)
class Use:
    """Weights that a pass uses together, and how many rows or experts of each it reads: all rows in a walk."""

    way: Way
    weights: tuple[PaperWeight, ...]
    count: int = 1

    @cached_property
    def nbytes(self) -> tuple[int, ...]:
        """Bytes read of each."""
        if self.way == "rows":
            return tuple(self.count * weight.row_bytes for weight in self.weights)
        each = (self.count if self.way == "experts" else weight.matrices for weight in self.weights)
        return tuple(weight.nbytes * count for weight, count in zip(self.weights, each, strict=True))

    @cached_property
    def multiply_adds(self) -> tuple[int, ...]:
        """Of one row of input, with each."""
        if self.way == "rows":
            return (0,) * len(self.weights)
        each = (self.count if self.way == "experts" else weight.matrices for weight in self.weights)
        return tuple(weight.rows * weight.columns * count for weight, count in zip(self.weights, each, strict=True))


@dataclass(frozen=True)
class VectorUse:
    """A vector that a pass uses, and the bytes that it reads of it."""

    tensor: str
    nbytes: int
