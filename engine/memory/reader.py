"""Positional reads of model files into memory of our own."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError


class ModelFile:
    """One file, open for reads at given offsets.

    Reads are explicit and never through a mapping: a mapped file that shrinks or whose disk goes away kills the
    process at the next touch, and its pages escape every memory budget.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - lives as long as this object
        except OSError as error:
            raise ModelFileError(f"Cannot open {path}: {_reason(error)}.") from error

    def read(self, into: npt.NDArray[np.uint8], offset: int, tensor: str) -> None:
        """Fill `into`, uint8 [n] and contiguous, with the n bytes at `offset`.

        Raises ModelFileError, naming the tensor, where the file ends early or the disk refuses.
        """
        view = into.data
        done = 0
        while done < len(view):
            try:
                count = self._read_some(view[done:], offset + done)
            except OSError as error:
                raise ModelFileError(
                    f"Reading tensor {tensor} from {self.path} failed: {_reason(error)}. "
                    "Check the disk, or download the file again."
                ) from error
            if count == 0:
                raise ModelFileError(
                    f"{self.path} ends inside tensor {tensor}, at byte {offset + done}: "
                    "the file is truncated or was changed while in use. Download it again."
                )
            done += count

    def _read_some(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [view], offset)
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(view) or 0

    def close(self) -> None:
        self._file.close()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
