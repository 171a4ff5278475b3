"""What the control groups of this process, such as those of a container, grant it.

A group's own limit and those of all above it hold. Version 2 has one tree of groups, version 1 one for each controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

FAR = 1 << 60
"""Bytes from which on a limit is none: version 1 writes a number near 2⁶³ for that."""


def cpu_quota(root: Path) -> float | None:
    """Processors' worth of time, by `root`; `None` for no limit.

    Version 2 writes "quota period" or "max period" into cpu.max, version 1 a file for each, a quota of -1 for no limit.
    """
    limits: list[float] = []
    for group, version in _groups(root, "cpu"):
        files = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, _, period = " ".join(text(group / file) or "" for file in files).strip().partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(root: Path) -> int | None:
    """Bytes of memory that all processes of the group may take together; `None` for no limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_room(root: Path) -> int | None:
    """Bytes of memory that are left of the limits; `None` for no limit.

    Pages of files that were not used lately count as free: the kernel drops them before it refuses anything
    (Linux, Documentation/admin-guide/cgroup-v2.rst, `inactive_file`).
    """
    return min((max(limit - used, 0) for limit, used in _memory(root)), default=None)


def text(file: Path) -> str | None:
    """What the system wrote into a file; `None` where there is none."""
    try:
        return file.read_text("ascii", errors="replace").strip()
    except OSError:
        return None


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Of each group with a limit, that and what it uses beside droppable pages of files."""
    for group, version in _groups(root, "memory"):
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (text(group / name) or "" for name in names)
        if not limit.isdecimal() or int(limit) >= FAR or not used.isdecimal():
            continue
        droppable = "inactive_file" if version == 2 else "total_inactive_file"
        counts = dict(line.partition(" ")[::2] for line in (text(group / "memory.stat") or "").splitlines())
        count = counts.get(droppable, "0")
        yield int(limit), max(int(used) - (int(count) if count.isdecimal() else 0), 0)


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """The folders of this process's group and of those above it, by `root`, each with its version."""
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mounts: tuple[str, ...] = ()
        version = 1
        if number == "0" and not controllers:
            mounts, version = ("",), 2
        elif controller in controllers.split(","):
            mounts = (controller, controllers)
        for mount in mounts:
            for group in _upwards(root / "sys/fs/cgroup" / mount, path):
                yield group, version


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The group at `path` and those above it. In a container the path may be one that is not to be seen from inside."""
    parts = PurePosixPath(path.lstrip("/")).parts
    if ".." in parts:
        parts = ()
    for depth in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:depth])
