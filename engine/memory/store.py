"""Where a model's weights are: read from disk once, then resident in the form in which they lie on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine import weights
from engine.buffers import ALIGNMENT, in_large_pages
from engine.cancel import Cancel
from engine.errors import BudgetError, ModelFileError
from engine.formats.index import Span, TensorIndex, TensorInfo
from engine.kernels.ops import Handle, InputRounding, Ops, Stack, Weight
from engine.memory.meter import Meter
from engine.memory.reader import ModelFile
from engine.memory.rows import put_in_order
from engine.types import LoadProgress
from engine.units import human_bytes

PIECE = 8 << 20
"""Bytes per read: small enough that a cancel is noticed at once, large enough for any disk."""


class WeightStore:
    """The `WeightLoader` of a model that fits into memory. Each tensor is read once, whoever asks for it again.

    Close it when the model is built: the handles keep the bytes, the files are no longer needed. A cancelled load
    raises `Cancelled`.
    """

    def __init__(
        self,
        index: TensorIndex,
        ops: Ops,
        meter: Meter,
        *,
        progress: Callable[[LoadProgress], None] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self._index = index
        self._ops = ops
        self._meter = meter
        self._progress = progress
        self._cancel = cancel
        self._files: dict[Path, ModelFile] = {}
        self._room: npt.NDArray[np.uint8] | None = None
        self._taken = 0
        self._matrices: dict[tuple[str, int, int, InputRounding, float | None], Handle] = {}
        self._stacks: dict[tuple[str, int, int], Handle] = {}
        self._bytes: dict[str, npt.NDArray[np.uint8]] = {}
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        self._skipped: set[str] = set()
        self.total = sum(info.nbytes for info in index.tensors.values())
        """Bytes of all tensors in the file but those that are skipped."""
        self.bytes_read = 0
        """Bytes read from disk so far."""

    def has(self, name: str) -> bool:
        return name in self._index.tensors or name in self._index.vectors

    def matrix(
        self, name: str, rows: int, columns: int, *, activations: InputRounding = "blocks", scale: float | None = None
    ) -> Handle:
        """Raises ModelFileError where the tensor is missing or is not [rows, columns]; a vector counts as one row."""
        return self.parts(name, (rows,), columns, activations=activations, scale=scale)[0]

    def parts(
        self,
        name: str,
        rows: Sequence[int],
        columns: int,
        *,
        activations: InputRounding = "blocks",
        scale: float | None = None,
    ) -> list[Handle]:
        """Handles for so many rows each of one tensor, whose bytes they share. Raises ModelFileError where the tensor
        is missing or is not [sum of rows, columns]."""
        info = self._info(name, (sum(rows), columns))
        handles, start = [], 0
        for count in rows:
            key = name, start, count, activations, scale
            if key not in self._matrices:
                data = self._whole(info)[start : start + count]
                self._matrices[key] = self._ops.matrix(
                    Weight(name, info.encoding, count, columns, data, activations, scale)
                )
            handles.append(self._matrices[key])
            start += count
        return handles

    def experts(
        self,
        name: str,
        n_experts: int,
        rows: Sequence[int],
        columns: int,
        *,
        scales: npt.NDArray[np.float32] | None = None,
    ) -> list[Handle]:
        """Handles for so many rows each of every expert, whose bytes they share. Raises ModelFileError where the tensor
        is missing or is neither [n_experts, sum of rows, columns] nor [n_experts · sum of rows, columns]."""
        info = self._stack_info(name, n_experts, sum(rows), columns)
        handles, start = [], 0
        for count in rows:
            key = name, start, count
            if key not in self._stacks:
                data = self._whole(info).reshape(n_experts, sum(rows), -1)[:, start : start + count]
                self._stacks[key] = self._ops.stack(Stack(name, info.encoding, n_experts, count, columns, data, scales))
            handles.append(self._stacks[key])
            start += count
        return handles

    def vector(self, name: str, *shape: int) -> Handle:
        """Raises ModelFileError where the tensor is missing or has another shape."""
        return self._ops.vector(self.host(name, *shape))

    def host(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        """The decoded values, float32. Raises ModelFileError as `vector` does."""
        if name in self._index.vectors:
            return self._worked_out(name, shape)
        return self._decoded(self._info(name, shape))

    def made(self, values: npt.NDArray[np.float32]) -> Handle:
        return self._ops.vector(values)

    def skip(self, name: str) -> None:
        """The model has no use for this tensor: it counts as used, and is not read."""
        if name in self._index.tensors and name not in self._skipped:
            self._skipped.add(name)
            self.total -= self._index.tensors[name].nbytes

    def require_all_used(self, prefix: str = "blk.") -> None:
        """Raises ModelFileError where the file has a tensor of that prefix, by default a layer's, that nobody asked
        for: without it the model would be another one.

        Not so the scales of activations that stand beside NVFP4 weights for devices that multiply in four bits.
        """
        used = {name for name, *_ in (*self._matrices, *self._stacks)} | self._vectors.keys() | self._skipped
        needed = (name for name in self._index.tensors if name.startswith(prefix) and not name.endswith(".input_scale"))
        unused = sorted(name for name in needed if name not in used)
        if unused:
            more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
            raise ModelFileError(
                f"{self._index.paths[0].name} holds {unused[0]}{more}, which its configuration has no use for: the "
                "file is damaged, or it needs another version of Millstream."
            )

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        while self._files:
            self._files.popitem()[1].close()

    def _info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self._index.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"{self._index.paths[0].name} has no tensor {name}, which its architecture needs: "
                "the file is incomplete. Download it again, or choose another."
            )
        if info.shape != shape and (1, *info.shape) != shape:
            raise ModelFileError(
                f"Tensor {name} in {info.path.name} has the shape {_text(info.shape)}, but the model's configuration "
                f"asks for {_text(shape)}: the file is damaged or was converted wrongly."
            )
        return info

    def _stack_info(self, name: str, n_experts: int, rows: int, columns: int) -> TensorInfo:
        """Of a tensor of matrices [n_experts, rows, columns], whose first two dimensions may be one in the file."""
        flat = name in self._index.tensors and len(self._index.tensors[name].shape) == 2
        return self._info(name, (n_experts * rows, columns) if flat else (n_experts, rows, columns))

    def _whole(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """The tensor's bytes, uint8 [rows, row_bytes], read once."""
        if info.name not in self._bytes:
            self._bytes[info.name] = self._read(info).reshape(math.prod(info.shape[:-1]), -1)
        return self._bytes[info.name]

    def _decoded(self, info: TensorInfo) -> npt.NDArray[np.float32]:
        """A small tensor's values, float32 of its shape, read once."""
        if info.name not in self._vectors:
            packed = self._read(info).reshape(math.prod(info.shape[:-1]), -1)
            self._vectors[info.name] = _changed(weights.get(info.encoding).decode(packed), info).reshape(info.shape)
        return self._vectors[info.name]

    def _worked_out(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        values = np.array(self._index.vectors[name], np.float32)
        if values.shape != shape:
            raise ModelFileError(
                f"{name} follows from the configuration of {self._index.paths[0].name} with {values.size} values, but "
                f"the model asks for {_text(shape)}: the configuration contradicts itself."
            )
        return values

    def _place(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Room for one tensor, beside the others in one stretch of memory. Raises BudgetError where there is none."""
        if self._room is None:
            sizes = (_rounded(info.nbytes) for info in self._index.tensors.values())
            try:
                self._room = in_large_pages(sum(sizes))
            except MemoryError as error:
                raise BudgetError(
                    f"The system refused {human_bytes(self.total)} of memory for the weights of "
                    f"{self._index.paths[0].name}: close other programs, or choose a smaller model."
                ) from error
        start = self._taken
        self._taken += _rounded(nbytes)
        return self._room[start : start + nbytes]

    def _read(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        data = self._place(info.nbytes)
        at = 0
        for span in info.spans:
            self._read_span(span, data[at : at + span.nbytes], info)
            at += span.nbytes
        if info.transposed:
            _transpose(data, info)
        self._meter.add("weights", info.nbytes)
        return data

    def _read_span(self, span: Span, into: npt.NDArray[np.uint8], info: TensorInfo) -> None:
        file = self._files.get(span.path)
        if file is None:
            file = self._files[span.path] = ModelFile(span.path)
        most = max(PIECE // info.unit_bytes, 1) * info.unit_bytes
        for start in range(0, span.nbytes, most):
            if self._cancel is not None:
                self._cancel.check()
            piece = into[start : start + most]
            file.read(piece, span.offset + start, info.name)
            if info.split_heads or info.column_runs:
                put_in_order(piece, info)
            self.bytes_read += piece.size
            if self._progress is not None:
                self._progress(LoadProgress("Reading weights", self.bytes_read, self.total))


def _changed(values: npt.NDArray[np.float32], info: TensorInfo) -> npt.NDArray[np.float32]:
    """The values that a model uses (`TensorInfo.shift` and `logarithms`)."""
    if info.logarithms:
        with np.errstate(over="ignore"):
            return (-np.exp(values.astype(np.float64))).astype(np.float32)
    return values + np.float32(info.shift) if info.shift else values


def _transpose(data: npt.NDArray[np.uint8], info: TensorInfo) -> None:
    """Bring a matrix that lies column by column into rows, in place."""
    rows, columns = info.shape
    data[:] = data.reshape(columns, rows, -1).swapaxes(0, 1).reshape(-1)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _text(shape: tuple[int, ...]) -> str:
    return " by ".join(str(extent) for extent in shape)
