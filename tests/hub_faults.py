"""What a scripted Hub can have for a file, and what can go wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

BLOCK = 1 << 20


@dataclass(frozen=True)
class Big:
    """A file of `nbytes` that is made as it is read, the same each time; other seeds, other bytes."""

    nbytes: int
    seed: int = 0

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, span: slice) -> bytes:
        first, end, _ = span.indices(self.nbytes)
        out = bytearray()
        while first < end:
            number, offset = divmod(first, BLOCK)
            block = np.random.default_rng((self.seed, number)).bytes(BLOCK)
            out += block[offset : offset + end - first]
            first = number * BLOCK + BLOCK
        return bytes(out)

    def __bytes__(self) -> bytes:
        return self[:]


Content = bytes | Big


@dataclass(frozen=True)
class Status:
    """Answer with this status; `headers` may hold Retry-After, X-Error-Code, X-Error-Message."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Redirect:
    """Send the client elsewhere: any address, also one of another kind; "" is in circles."""

    location: str = ""


@dataclass(frozen=True)
class LoginPage:
    """What a captive portal answers: status 200 and a page instead of the bytes."""


@dataclass(frozen=True)
class Hang:
    """No answer before `release()`; the bytes up to `after`, where it is not negative, come first."""

    after: int = -1


@dataclass(frozen=True)
class Slow:
    """So many bytes a second."""

    rate: float


@dataclass(frozen=True)
class CutOff:
    """The connection breaks after so many bytes of the body."""

    after: int


@dataclass(frozen=True)
class WrongBytes:
    """The right number of bytes, and every one of them flipped."""


@dataclass(frozen=True)
class WrongLength:
    """The header promises so many bytes more than the file has (fewer, where negative), and the body keeps to it or
    ends early."""

    extra: int


@dataclass(frozen=True)
class NoRange:
    """The whole file with status 200, whatever was asked for."""


Fault = Status | Redirect | LoginPage | Hang | Slow | CutOff | WrongBytes | WrongLength | NoRange


def spoils_bytes(fault: Fault | None) -> bool:
    """Whether it acts on the bytes of a file, and not in place of an answer."""
    if isinstance(fault, Hang):
        return fault.after >= 0
    return isinstance(fault, Slow | CutOff | WrongBytes | WrongLength | NoRange)
