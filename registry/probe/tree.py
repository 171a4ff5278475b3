"""What is known about a machine: one tree of plain data.

Sizes are bytes, rates bytes a second; `None` and "" mean that the machine does not tell. Nothing in it names a person
or this one machine: no user, no host, no serial number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "apple"]
FolderState = Literal["ready", "new", "drive missing", "unreadable"]


@dataclass(frozen=True)
class System:
    """`name` is Linux, Windows or macOS; `python` and `program` are versions of Python and of Millstream."""

    name: str
    version: str
    python: str
    program: str


@dataclass(frozen=True)
class Processor:
    """`cores` and `logical` count what this process may use. `quota` is how many processors' worth of time a container
    grants. `instructions` are those that matter to the kernels, by the names that Linux gives them.

    `kernels` is the build of them that is chosen, of those that run here the fastest; "" where none can be loaded.
    `threads` is how many compute by default.
    """

    name: str
    architecture: str
    cores: int
    logical: int
    quota: float | None
    threads: int
    instructions: tuple[str, ...]
    kernels: str


@dataclass(frozen=True)
class Memory:
    """`total` and `free` are what this process may have, within a container's limit; `installed` the machine's own."""

    total: int
    free: int
    installed: int


@dataclass(frozen=True)
class Storage:
    """The drive of the models folder. A `new` folder is not there yet, but can be made.

    `read_rate` was measured earlier, with several reads at once and past the system's cache.
    """

    folder: str
    state: FolderState
    file_system: str
    total: int | None
    free: int | None
    removable: bool | None
    network: bool | None
    rotating: bool | None
    read_rate: float | None


@dataclass(frozen=True)
class Battery:
    """`percent` is 0 … 100."""

    percent: int
    plugged_in: bool | None


@dataclass(frozen=True)
class Gpu:
    """A graphics card. `architecture` is `sm_89`, `gfx1100`, `apple-m2`, `xe-hpg`, …

    `total` and `free` are its own memory, or, where it is `shared` with the system, what the card may use of that.
    `why_not` is a sentence where the card is not `usable`.
    """

    vendor: Vendor
    name: str
    architecture: str
    total: int | None
    free: int | None
    shared: bool
    driver: str
    usable: bool
    why_not: str


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be, in a sentence or two for the person. `part` names the field of `Probe`."""

    part: str
    sentence: str


@dataclass(frozen=True)
class Probe:
    system: System
    processor: Processor
    memory: Memory
    storage: Storage
    battery: Battery | None
    gpus: tuple[Gpu, ...]
    problems: tuple[Problem, ...]
