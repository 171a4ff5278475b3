"""Hundreds of thousands of short texts, such as a vocabulary's, without an object for each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload


class Texts(Sequence[str]):
    """A list of texts that is never changed: their UTF-8, one after the other, and where each begins and ends.

    A text is made anew each time that it is asked for.
    """

    __slots__ = ("_bounds", "_data")

    def __init__(self, data: bytes, bounds: array[int]) -> None:
        """`bounds`, 0 and then where each text ends, ascend; each text is UTF-8 of its own."""
        self._data = data
        self._bounds = bounds

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """The same texts; themselves, where they are `Texts` already."""
        if isinstance(texts, Texts):
            return texts
        data, bounds = bytearray(), array("I", [0])
        for text in texts:
            data += text.encode()
            bounds.append(len(data))
        return cls(bytes(data), bounds)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
            if index < 0:
                raise IndexError(index)
        return self._data[self._bounds[index] : self._bounds[index + 1]].decode()

    def __iter__(self) -> Iterator[str]:
        data = self._data
        for start, stop in pairwise(self._bounds):
            yield data[start:stop].decode()

    def __eq__(self, other: object) -> bool:
        """Whether it is a sequence of the same texts."""
        if isinstance(other, Texts):
            return self._bounds == other._bounds and self._data == other._data
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(text == its for text, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]
