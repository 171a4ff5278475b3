"""What a folder is mounted from, and what kind of drive that is, as Linux tells it under /proc and /sys."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from engine.cgroups import text

NETWORK: Final = re.compile(
    r"9p|afs|beegfs|ceph|cifs|fuse\.(davfs2|glusterfs|rclone|s3fs|sshfs)|gpfs|lustre|ncpfs|nfs\d?|smb(fs|\d)"
)
"""Types of file systems that another machine keeps."""

VIRTUAL: Final = ("vd", "xvd", "nbd")
"""What the names of a virtual machine's drives begin with."""

DEEPEST: Final = 8
"""Block devices upon one another that are followed, as with encryption over volumes over RAID."""


@dataclass(frozen=True)
class Mount:
    """`point` is where it is in the tree; `device` its number "8:1", `source` what was mounted."""

    point: PurePosixPath
    file_system: str
    device: str
    source: str


def mount_of(root: Path, folder: PurePosixPath) -> Mount | None:
    """The mount that an absolute folder, without links in it, is on.

    Of /proc/self/mountinfo (Linux, Documentation/filesystems/proc.rst): fields 3 and 5 are device and mount point, and
    type and source follow a lone hyphen. A later line hides an earlier one of the same point.
    """
    best: Mount | None = None
    for line in (text_utf8(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 2:
            continue
        point = PurePosixPath(_plain(fields[4]))
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= len(best.point.parts)):
            best = Mount(point, kind[0], fields[2], _plain(kind[1]))
    return best


def text_utf8(file: Path) -> str | None:
    try:
        return file.read_text("utf-8", errors="surrogateescape")
    except OSError:
        return None


@dataclass(frozen=True)
class Disk:
    """Of the drives under a mount: whether any can be taken out, and whether any turns. `None` where it is not told."""

    removable: bool | None
    rotating: bool | None


def disk_of(root: Path, mount: Mount) -> Disk:
    """By /sys/block. A file system with a number of its own (btrfs) is found by the name of its device."""
    block = root / "sys/dev/block" / mount.device
    if not block.exists():
        name = Path(os.path.realpath(root / mount.source.lstrip("/"))).name if mount.source.startswith("/dev/") else ""
        block = root / "sys/class/block" / name
        if not name or not block.exists():
            return Disk(None, None)
    drives = _drives(Path(os.path.realpath(block)), DEEPEST)
    return Disk(_any([_removable(drive) for drive in drives]), _any([_rotating(drive) for drive in drives]))


def _drives(block: Path, deepest: int) -> list[Path]:
    """The whole drives that a block device lies on. A partition is a folder inside its drive's."""
    below = sorted((block / "slaves").glob("*")) if deepest else []
    if below:
        return [drive for each in below for drive in _drives(Path(os.path.realpath(each)), deepest - 1)]
    return [block.parent if (block / "partition").exists() else block]


def _removable(drive: Path) -> bool | None:
    """What hangs on USB can be pulled out even where the medium in it cannot."""
    return True if any(re.fullmatch(r"usb\d+", part) for part in drive.parts) else _flag(drive / "removable")


def _rotating(drive: Path) -> bool | None:
    """A virtual machine's drives say that they turn, whatever they are."""
    return None if drive.name.startswith(VIRTUAL) else _flag(drive / "queue/rotational")


def _flag(file: Path) -> bool | None:
    return {"0": False, "1": True}.get(text(file) or "")


def _any(flags: list[bool | None]) -> bool | None:
    known = [flag for flag in flags if flag is not None]
    return any(known) if known else None


def _plain(field: str) -> str:
    r"""A field of a table of mounts, in which \040 stands for a space."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
