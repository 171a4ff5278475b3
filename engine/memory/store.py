"""A model's weights, in the form in which they lie on disk: read once to stay in memory, or lent each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine import weights
from engine.address_space import raise_it
from engine.buffers import ALIGNMENT, in_large_pages
from engine.cancel import Cancel
from engine.errors import BudgetError, ModelFileError
from engine.formats.index import TensorIndex, TensorInfo
from engine.kernels.lending import Lent
from engine.kernels.ops import Handle, InputRounding, Ops, Stack, Weight
from engine.memory.meter import Meter
from engine.memory.rows import StreamedRows
from engine.memory.stream import Stream
from engine.memory.tensor_reader import TensorReader
from engine.types import LoadProgress
from engine.units import human_bytes

if TYPE_CHECKING:
    from engine.memory.planner import Placement

Rows = tuple[str, int, int]
"""Of a tensor, so many rows from a first one on: those of it, or of each of its matrices."""


class WeightStore:
    """The `WeightLoader` of a model. Each tensor is read once, whoever asks for it again.

    With a `placement`, that of the same file, `stream` lends what does not stay in memory. Without one, all stays.
    Without `keep_cached` the system keeps no copy of what was read.
    Close it when the model is built: the handles keep the bytes, its files are no longer needed. A cancelled load
    raises `Cancelled`.
    """

    def __init__(
        self,
        index: TensorIndex,
        ops: Ops,
        meter: Meter,
        *,
        placement: Placement | None = None,
        stream: Stream | None = None,
        keep_cached: bool = True,
        progress: Callable[[LoadProgress], None] | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        self._index = index
        self._ops = ops
        self._meter = meter
        self._placement = placement
        self._stream = stream
        self._reader = TensorReader(keep_cached=keep_cached, progress=progress, cancel=cancel)
        self._room: npt.NDArray[np.uint8] | None = None
        self._taken = 0
        self._matrices: dict[tuple[str, int, int, InputRounding, float | None], Handle] = {}
        self._stacks: dict[Rows, Handle] = {}
        self._lent: dict[Rows, StreamedRows] = {}
        self._bytes: dict[str, npt.NDArray[np.uint8]] = {}
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        self._skipped: set[str] = set()
        self._reader.total = sum(map(self._held_bytes, index.tensors.values()))

    @property
    def total(self) -> int:
        """Bytes of all tensors in the file that stay in memory, but those that are skipped."""
        return self._reader.total

    @property
    def bytes_read(self) -> int:
        """Bytes read from disk so far."""
        return self._reader.bytes_read

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
                lent = None
                if self._is_lent(info):
                    lent, data = self._lend(info, None, start, count, data), data[:0]
                self._matrices[key] = self._ops.matrix(
                    Weight(name, info.encoding, count, columns, data, activations, scale, lent)
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
                whole = self._whole(info)
                data = whole.reshape(len(whole) // sum(rows), sum(rows), whole.shape[1])[:, start : start + count]
                lent = None
                if self._is_lent(info):
                    lent, data = self._lend(info, n_experts, start, count, data), data[:0]
                self._stacks[key] = self._ops.stack(
                    Stack(name, info.encoding, n_experts, count, columns, data, scales, lent)
                )
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
            self._reader.total -= self._held_bytes(self._index.tensors[name])

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
        self._reader.close()

    @property
    def lent(self) -> Mapping[Rows, StreamedRows]:
        """What was asked for and does not stay in memory."""
        return self._lent

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

    def _held_rows(self, info: TensorInfo) -> int:
        """Rows that stay in memory, from the first."""
        rows = math.prod(info.shape[:-1])
        return rows if self._placement is None else self._placement.held.get(info.name, rows)

    def _held_bytes(self, info: TensorInfo) -> int:
        return info.nbytes // max(math.prod(info.shape[:-1]), 1) * self._held_rows(info)

    def _is_lent(self, info: TensorInfo) -> bool:
        return self._held_rows(info) < math.prod(info.shape[:-1])

    def _lend(
        self, info: TensorInfo, matrices: int | None, start: int, count: int, held: npt.NDArray[np.uint8]
    ) -> Lent:
        assert self._stream is not None
        key = info.name, start, count
        if key not in self._lent:
            if matrices is None:
                self._lent[key] = self._stream.matrix(info, start=start, rows=count, held=held)
            else:
                self._lent[key] = self._stream.stack(info, matrices, start=start, rows=count, held=held)
        return self._lent[key]

    def _whole(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as far as they stay in memory, uint8 [rows, row_bytes], read once."""
        if info.name not in self._bytes:
            row_bytes = info.nbytes // max(math.prod(info.shape[:-1]), 1)
            self._bytes[info.name] = self._read(info, self._held_bytes(info)).reshape(self._held_rows(info), row_bytes)
        return self._bytes[info.name]

    def _decoded(self, info: TensorInfo) -> npt.NDArray[np.float32]:
        """A small tensor's values, float32 of its shape, read once."""
        if info.name not in self._vectors:
            self._meter.add("weights", decoded_bytes(info))
            packed = np.empty(info.nbytes, np.uint8)
            self._reader.read(packed, info)
            values = weights.get(info.encoding).decode(packed.reshape(math.prod(info.shape[:-1]), -1))
            self._vectors[info.name] = _changed(values, info).reshape(info.shape)
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
            sizes = (_rounded(self._held_bytes(info)) for info in self._index.tensors.values())
            try:
                self._room = in_large_pages(sum(sizes))
            except MemoryError as error:
                raise BudgetError(
                    f"The system refused {human_bytes(self.total)} of memory for the weights of "
                    f"{self._index.paths[0].name}: {raise_it()}close other programs, or choose a smaller model."
                ) from error
        start = self._taken
        self._taken += _rounded(nbytes)
        return self._room[start : start + nbytes]

    def _read(self, info: TensorInfo, nbytes: int) -> npt.NDArray[np.uint8]:
        """The first `nbytes` of a tensor."""
        self._meter.add("weights", nbytes)
        data = self._place(nbytes)
        self._reader.read(data, info)
        return data


def decoded_bytes(info: TensorInfo) -> int:
    """Memory of a tensor that is used as numbers: float32, whatever it is in the file."""
    return math.prod(info.shape) * 4


def _changed(values: npt.NDArray[np.float32], info: TensorInfo) -> npt.NDArray[np.float32]:
    """The values that a model uses (`TensorInfo.shift` and `logarithms`)."""
    if info.logarithms:
        with np.errstate(over="ignore"):
            return (-np.exp(values.astype(np.float64))).astype(np.float32)
    return values + np.float32(info.shift) if info.shift else values


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _text(shape: tuple[int, ...]) -> str:
    return " by ".join(str(extent) for extent in shape)
