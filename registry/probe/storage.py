"""The drive that the models are on: whether it is there, what it has left, and how fast it was read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

from engine.errors import ModelFileError
from engine.memory.machine import kept_drive
from registry.probe.mounts import NETWORK, Mount, disk_of, mount_of
from registry.probe.privacy import tidy
from registry.probe.tree import FolderState, Problem, Storage

MOUNT_PLACES: Final = ("/run/media/*/*", "/media/*/*", "/mnt/*", "/Volumes/*")
"""Where systems mount drives that come and go, more than one name deep on most."""


def storage(folder: Path, measurements: Path | None, home: Path, root: Path) -> tuple[Storage, tuple[Problem, ...]]:
    """The drive of `folder`, which need not exist. The figures of its reads are those that were kept."""
    empty = Storage(tidy(str(folder), home), "ready", "", None, None, None, None, None, None)
    there = existing(folder)
    if there is None or drive_is_missing(folder, there):
        sentence = f"The drive of the models folder {folder} is not there. Connect it, or choose another folder."
        return replace(empty, state="drive missing"), (Problem("storage", sentence),)
    try:
        with os.scandir(there) as entries:
            next(entries, None)
        usage = shutil.disk_usage(there)
    except OSError as error:
        sentence = f"The models folder {folder} cannot be read: {error.strerror or error}."
        return replace(empty, state="unreadable"), (Problem("storage", sentence),)
    state: FolderState = "ready" if there == folder else "new"
    problems: tuple[Problem, ...] = ()
    if not os.access(there, os.W_OK):
        sentence = f"Nothing can be written into the models folder {folder}. Allow it, or choose another folder."
        problems = (Problem("storage", sentence),)
    found = replace(empty, state=state, total=usage.total, free=usage.free, read_rate=_rate(there, measurements))
    return _placed(found, Path(os.path.realpath(there)), root), problems


def existing(folder: Path) -> Path | None:
    """The folder, or the nearest one above it that is there; `None` where its drive has no letter now."""
    for path in (folder, *folder.parents):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # It may be there, and refuses: reading it tells why.
            return path
        return path
    return None


def drive_is_missing(folder: Path, there: Path, mounted: Callable[[Path], bool] = os.path.ismount) -> bool:
    """Whether a folder, of which `there` is the part that exists, lies where a drive would be mounted that is not."""
    for place in MOUNT_PLACES:
        depth = len(PurePosixPath(place).parts)
        if there != folder and PurePosixPath(*folder.parts[:depth]).match(place):
            waits = len(there.parts) < depth or (len(there.parts) == depth and _is_empty(there))
            return waits and not mounted(there)
    return False


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _rate(there: Path, measurements: Path | None) -> float | None:
    try:
        drive = kept_drive(there, measurements)
    except ModelFileError:
        return None
    return None if drive is None else drive.bandwidth


def _placed(found: Storage, there: Path, root: Path) -> Storage:
    """With the file system and the kind of drive."""
    if sys.platform == "linux":
        mount = mount_of(root, PurePosixPath(there))
        return found if mount is None else placed_on_linux(found, mount, root)
    mounts = [each for each in psutil.disk_partitions(all=True) if there.is_relative_to(each.mountpoint)]
    if not mounts:
        return found
    nearest = max(mounts, key=lambda each: len(Path(each.mountpoint).parts))
    options = set(nearest.opts.split(","))
    if sys.platform == "win32":
        network = "remote" in options
        return replace(found, file_system=nearest.fstype, removable="removable" in options, network=network)
    return replace(found, file_system=nearest.fstype, network="local" not in options)


def placed_on_linux(found: Storage, mount: Mount, root: Path) -> Storage:
    if NETWORK.fullmatch(mount.file_system):
        return replace(found, file_system=mount.file_system, removable=False, network=True)
    disk = disk_of(root, mount)
    return replace(
        found, file_system=mount.file_system, removable=disk.removable, network=False, rotating=disk.rotating
    )
