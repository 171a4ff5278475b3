"""Reading a file's header forwards, with every length checked before anything is allocated for it."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from engine.errors import ModelFileError
from engine.texts import Texts

_CHUNK = 1 << 18
"""Bytes fetched at a time; more only where one value is longer."""


class MoreNeeded(ModelFileError):
    """Only the beginning of a file is here, and it ends too soon: its first `nbytes` bytes are needed at least."""

    def __init__(self, name: str, nbytes: int) -> None:
        super().__init__(f"Only the beginning of {name} is here: its first {nbytes} bytes are needed.")
        self.nbytes = nbytes


def size_of(file: BinaryIO, size: int | None) -> int:
    """The file's own size, or the one that is told of a file of which only the beginning is here."""
    return os.fstat(file.fileno()).st_size if size is None else size


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, open for its beginning to be read: nothing is read ahead, which might be megabytes of weights in the
    system's memory. Whatever the system refuses, then or later, becomes a ModelFileError."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                with suppress(OSError):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            yield file
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}.") from error


class Cursor:
    """A position in a file of `size` bytes, of which a header may have the first `limit`.

    `what` names the thing that is being read, for errors; `order` is the byte order, as `struct` writes it. Every
    read raises ModelFileError where the bytes asked for lie beyond the end of the file or the limit. With `partly`
    perhaps only the beginning of the file is here, and its kind `MoreNeeded` is raised where that ends.
    """

    def __init__(self, file: BinaryIO, *, name: str, size: int, limit: int, partly: bool = False) -> None:
        self.name = name
        self.size = size
        self._partly = partly
        self.what = "its header"
        self.order = "<"
        self._file = file
        self._limit = limit
        self._buffer = b""
        self._at = 0
        self._start = 0

    @property
    def position(self) -> int:
        """Bytes from the start of the file."""
        return self._start + self._at

    def error(self, problem: str) -> ModelFileError:
        """What is wrong with the thing being read, as an error to raise."""
        return ModelFileError(f"{self.name} is damaged: {self.what} {problem}. Download it again.")

    def require(self, nbytes: int) -> None:
        """Raise unless `nbytes` more bytes are there."""
        if nbytes > self.size - self.position:
            raise ModelFileError(
                f"{self.name} is cut short or damaged: {self.what} goes on past the end of the file, "
                f"which has {self.size} bytes. Download it again."
            )
        if nbytes > self._limit - self.position:
            raise self.error(f"goes on past {self._limit} bytes, more than any sound header has")

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        self._fill(nbytes)
        self._at += nbytes
        return self._buffer[self._at - nbytes : self._at]

    def number(self, code: str) -> int:
        """One whole number in the `struct` format `code`."""
        (value,) = struct.unpack(self.order + code, self.take(struct.calcsize(self.order + code)))
        return int(value)

    def text(self, longest: int) -> str:
        """A u64 length, at most `longest`, and as many bytes of UTF-8."""
        length = self.number("Q")
        if length > longest:
            raise self.error(f"has a text of {length} bytes, more than the {longest} allowed")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.error("is not valid UTF-8") from None

    def texts(self, count: int) -> Texts:
        """`count` texts in a row. A tokenizer has hundreds of thousands, so this loop reads the buffer directly."""
        self.require(8 * count)
        length_at = struct.Struct(self.order + "Q").unpack_from
        data, bounds = bytearray(), array("I", [0])
        buffer, at = self._buffer, self._at
        try:
            for _ in range(count):
                if at + 8 > len(buffer):
                    self._at = at
                    self._fill(8)
                    buffer, at = self._buffer, self._at
                (length,) = length_at(buffer, at)
                at += 8
                if at + length > len(buffer):
                    self._at = at
                    self._fill(length)
                    buffer, at = self._buffer, self._at
                text = buffer[at : at + length]
                text.decode()
                data += text
                bounds.append(len(data))
                at += length
        except UnicodeDecodeError:
            raise self.error(f"is not valid UTF-8 in entry {len(bounds) - 1}") from None
        self._at = at
        return Texts(bytes(data), bounds)

    def _fill(self, nbytes: int) -> None:
        """Have `nbytes` bytes in the buffer at `_at`."""
        missing = nbytes - (len(self._buffer) - self._at)
        if missing <= 0:
            return
        self.require(nbytes)
        fetched = self._file.read(max(missing, _CHUNK))
        if len(fetched) < missing:
            if self._partly:
                raise MoreNeeded(self.name, self.position + nbytes)
            raise ModelFileError(f"{self.name} became shorter while it was read. Download it again.")
        self._start += self._at
        self._buffer = self._buffer[self._at :] + fetched
        self._at = 0
