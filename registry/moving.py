"""The library moved to another folder or drive: until everything is there and was read again, the old one is in use.

On one drive the folder gets another name. To another drive, or into a library that is there already, each file is
copied; then the settings name the new folder; then the old files are deleted, and only such as are in the new one.
Whatever is cut off, one of the two folders is whole and in use, and the same move can be asked for again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from engine.errors import SettingsError, StorageError
from registry.copying import MARGIN, check_room, copy_file, sha256_of
from registry.importing import WORK
from registry.library import Library
from registry.moving_files import BEGUN, DOWNLOADS, SKIPPED, files_of, has_entries, held, nobody_at_work, second_name
from registry.place import Place, choose, from_environment, mark, marker_id, settings_file
from registry.progress import Progress
from registry.refusals import storage
from registry.saved import read_json, rename, write_json

_CLOSE: Final = 2 * 10**9
"""Nanoseconds."""
_LARGE: Final = 1 << 20
"""Bytes of a file that is not read once more to tell it from another of its size and time."""


@dataclass(frozen=True)
class Survey:
    """What a move means: `nbytes` of `files` get another place. `renames`: on one drive, so that nothing is copied;
    else `needed` bytes more are to be free there, where `free` are."""

    files: int
    nbytes: int
    renames: bool
    needed: int
    free: int


def survey_move(source: Path, target: Path, settings: Path | None = None) -> Survey:
    """What it means to move the library `source` to `target`; changes nothing.

    Raises what `move_library` raises for places between which it moves nothing.
    """
    return _begin(source, target, settings, lambda _: None, Cancel()).survey()


def refuse_to_choose(settings: Path | None = None) -> None:
    """Raises SettingsError where the environment says where the models are, so that nothing else can."""
    if settings is None and from_environment() is not None:
        raise SettingsError(
            "MILLSTREAM_HOME says where the models are. Move its folder yourself and set it to the new one, or unset "
            "it."
        )


def move_library(
    source: Path,
    target: Path,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    settings: Path | None = None,
) -> Library:
    """Have the models of the library `source`, the one in use, in `target` from now on: → the library there.

    `target` is absent, empty, a library, or one to which this move was begun before. What a cancelled move has copied
    stays there, for it to go on with. `settings` is the file that is to name the folder, the person's own by default.

    Raises SettingsError for a target that cannot be one, StorageError where a disk refuses, has too little room, or a
    download or an import runs, and Cancelled.
    """
    move = _begin(source, target, settings, progress or (lambda _: None), cancel or Cancel())
    settings = settings or settings_file()
    with storage(settings):
        settings.parent.mkdir(parents=True, exist_ok=True)
    with held(settings.with_name("moving.lock"), "The models are being moved already. Wait until that is done."):
        move.run()
    return Library(target.expanduser().absolute(), chosen=True)


def _begin(
    source: Path, target: Path, settings: Path | None, report: Callable[[Progress], None], cancel: Cancel
) -> _Move:
    refuse_to_choose(settings)
    source, target = source.expanduser().absolute(), target.expanduser().absolute()
    return _Move(source, target, settings or settings_file(), report, cancel)


class _Move:
    def __init__(
        self, source: Path, target: Path, settings: Path, report: Callable[[Progress], None], cancel: Cancel
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._report = report
        self._cancel = cancel
        self._done = self._total = 0

    def run(self) -> None:
        place = Place.read(self._settings)
        if place.models == self._target != self._source:  # it was cut off at its end
            if place.leaving == self._source and self._source.is_dir():
                self._clear(files_of(self._source))
            Place(self._target, True).write(self._settings)
            return
        if self._is_empty(place):
            return choose(self._target, self._settings)
        with nobody_at_work(self._source):
            pass  # Windows renames no folder in which a lock is held
        if self._can_rename() and self._rename(place):
            return
        with nobody_at_work(self._source):
            self._copy(place)

    def survey(self) -> Survey:
        listing = {} if self._is_empty(Place.read(self._settings)) else files_of(self._source)
        firsts = self._firsts(sorted(listing))
        sizes = {name: size for name, (size, _) in listing.items() if firsts[name] == name}
        renames = not listing or self._can_rename()
        there = next(path for path in (self._target, *self._target.parents) if path.exists() or path == path.parent)
        with storage(self._target):
            free = shutil.disk_usage(there).free
        missing = sum(size for name, size in sizes.items() if not (self._target / name).is_file())
        needed = 0 if renames or not missing else missing + MARGIN
        return Survey(len(sizes), sum(sizes.values()), renames, needed, free)

    def _is_empty(self, place: Place) -> bool:
        """Whether there is nothing to move yet. Raises what `move_library` raises for places that will not do."""
        if place.models != self._source:
            raise SettingsError(f"The models are in {place.models}, and not in {self._source}: nothing was moved.")
        empty = not place.chosen and not self._source.exists()
        self._check(marked=place.chosen, there=not empty)
        return empty

    def _check(self, *, marked: bool, there: bool) -> None:
        source, target = self._source, self._target
        with storage(source):
            if there and (not source.is_dir() or (marked and not marker_id(source))):
                raise StorageError(f"The models folder {source} is not there. Connect the drive that it is on first.")
            real, new = source.resolve(), target.resolve()
        if new == real:
            raise SettingsError(f"The models are in {target} already.")
        if new.is_relative_to(real):
            raise SettingsError(f"{target} is inside the models folder itself. Choose a folder outside of it.")
        with storage(target):
            if target.exists() and not target.is_dir():
                raise SettingsError(f"{target} is a file. Choose a folder.")
            if has_entries(target) and not marker_id(target) and not self._is_begun():
                raise SettingsError(f"{target} is not empty. Choose an empty folder, or a new one.")

    def _can_rename(self) -> bool:
        """Whether both seem to be on one drive, and nothing is in the new folder."""
        source, target = self._source, self._target
        if has_entries(target) or source.is_symlink() or any(map(os.path.ismount, (source, target))):
            return False
        there = next(path for path in (target, *target.parents) if path.exists() or path == path.parent)
        with storage(target):
            return source.stat().st_dev == there.stat().st_dev

    def _is_begun(self) -> bool:
        """Whether this very move was cut off before."""
        try:
            whose = read_json(self._target / BEGUN).text("id")
        except (OSError, ValueError):
            return False
        return whose == marker_id(self._source) != ""

    def _rename(self, place: Place) -> bool:
        """False where the system will not: what seemed one drive may be two."""
        id = mark(self._source)
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            if self._target.is_dir():
                self._target.rmdir()
        except OSError:
            return False
        Place(place.models, place.chosen, coming=self._target).write(self._settings)
        with suppress(OSError):
            rename(self._source, self._target)
        if marker_id(self._target) != id:
            place.write(self._settings)
            return False
        self._report(Progress("Moving the models", 1, 1))
        Place(self._target, True).write(self._settings)
        return True

    def _copy(self, place: Place) -> None:
        id = mark(self._source)
        with storage(self._target):
            self._target.mkdir(parents=True, exist_ok=True)
            write_json(self._target / BEGUN, {"id": id})
        if not marker_id(self._target):  # else what is there already might be taken for all of it
            Place(place.models, place.chosen, coming=self._target).write(self._settings)
        copied: dict[str, tuple[int, int]] = {}
        while True:
            listing = files_of(self._source)
            if listing == copied:  # nothing was added meanwhile
                break
            self._copy_all(listing, {name for name in listing if copied.get(name) != listing[name]})
            copied = listing
        mark(self._target, id)
        if hasattr(os, "sync"):
            os.sync()  # the folders' names, too
        Place(self._target, True, leaving=self._source).write(self._settings)
        with storage(self._target):
            (self._target / BEGUN).unlink(missing_ok=True)
        self._clear(copied)
        Place(self._target, True).write(self._settings)

    def _copy_all(self, listing: dict[str, tuple[int, int]], names: set[str]) -> None:
        missing = {name for name in names if not self._has(name, listing[name])}
        firsts = self._firsts(sorted(names))
        if nbytes := sum(listing[name][0] for name in missing if firsts[name] == name):
            check_room(self._target, nbytes, "A copy of the models")
        self._total += 2 * nbytes
        for name in sorted(missing):
            new = self._target / name
            with storage(new):
                new.parent.mkdir(parents=True, exist_ok=True)
            old = self._source / name
            if old.is_symlink():
                self._link_anew(old, new)
            elif firsts[name] == name or not second_name(self._target / firsts[name], new):
                copy_file(old, new, self._came, self._cancel)

    def _came(self, nbytes: int) -> None:
        self._done = min(self._done + nbytes, self._total)
        self._report(Progress("Moving the models", self._done, self._total))

    def _firsts(self, names: list[str]) -> dict[str, str]:
        """Of each file the first of its names: a vision tower that several models share is on the disk once."""
        firsts: dict[tuple[int, int], str] = {}
        found = {}
        for name in names:
            with storage(self._source / name):
                status = os.lstat(self._source / name)
            found[name] = firsts.setdefault((status.st_dev, status.st_ino), name) if status.st_ino else name
        return found

    def _has(self, name: str, stamp: tuple[int, int]) -> bool:
        """Whether the new folder has a file already. Raises `StorageError` where another library has another one."""
        old, new = self._source / name, self._target / name
        if self._same(name, stamp):
            return True
        with storage(new):
            if not os.path.lexists(new) or (self._is_begun() and not marker_id(self._target)):
                return False  # or the file has changed since this move was begun
        raise StorageError(f"{new} is there already, and is another file than {old}. Move one of them away first.")

    def _same(self, name: str, stamp: tuple[int, int]) -> bool:
        """Copies keep their time, on some drives within two seconds, and are in place once they were read again."""
        old, new = self._source / name, self._target / name
        try:
            status = os.lstat(new)
        except OSError:
            return False
        if old.is_symlink() or new.is_symlink():
            return old.is_symlink() and new.is_symlink() and new.resolve() == old.resolve()
        apart = abs(status.st_mtime_ns - stamp[1])
        return status.st_size == stamp[0] and (
            apart == 0
            or (apart <= _CLOSE and stamp[0] >= _LARGE)
            or sha256_of(new, self._cancel) == sha256_of(old, self._cancel)
        )

    @staticmethod
    def _link_anew(old: Path, new: Path) -> None:
        with storage(new):
            new.unlink(missing_ok=True)
            new.symlink_to(old.parent / os.readlink(old), target_is_directory=old.is_dir())

    def _clear(self, copied: dict[str, tuple[int, int]]) -> None:
        """Delete from the old folder what is in the new one, then the folders that are empty; other files stay."""
        for name, stamp in copied.items():
            if self._same(name, stamp):
                with storage(self._source / name):
                    (self._source / name).unlink(missing_ok=True)
        for name in SKIPPED:
            with suppress(OSError):
                (self._source / name).unlink(missing_ok=True)
        for left in self._source.glob(f"{WORK}*"):
            shutil.rmtree(left, ignore_errors=True)
        for lock in (self._source / DOWNLOADS).glob("*/lock"):
            with suppress(OSError):
                lock.unlink()
        for folder, _, _ in os.walk(self._source, topdown=False):
            with suppress(OSError):  # it is not empty, or it is where the drive is joined
                os.rmdir(folder)
