"""A model that is on the machine already, made one of the library's: copied into it, or named in it where it lies."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout

from engine.cancel import Cancel
from engine.errors import ModelFileError, StorageError
from registry.copying import check_room, copy_file, sha256_of
from registry.items import CONFIG
from registry.library import SUFFIX, Library, LibraryModel
from registry.links import SUFFIX as LINK
from registry.links import Link, drive_of, linked_file, read_link
from registry.paths import made_safe
from registry.progress import Progress
from registry.provenance import FILE as PROVENANCE
from registry.provenance import KeptFile, Provenance, read_provenance
from registry.refusals import storage
from registry.saved import rename
from registry.stores.folders import at_path
from registry.stores.found import STORES, Found, FoundFile, require

How = Literal["reference", "copy"]
LOCK: Final = ".import.lock"
WORK: Final = ".import-"
"""How the folders begin in which copies are made."""
IMPORTED: Final = "import"
"""The source of a file that came from this machine: it cannot be fetched again."""


def import_model(
    model: str | Path | Found,
    library: Library,
    how: How,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> LibraryModel:
    """Have a model in the library: a file of it or its folder, or one that a store was found to have.

    With "copy" all its files are copied, and what was there is not needed any more. With "reference" it stays where it
    is, and has to. What belongs to it, parts and a vision tower, comes along. A killed import leaves nothing that is
    listed, and can be run again.

    Raises ModelFileError where it is damaged, no model, or there already, UnsupportedModelError where the engine does
    not know it, StorageError, and Cancelled.
    """
    cancel = cancel or Cancel()
    report = progress or (lambda _: None)
    found = require(model if isinstance(model, Found) else at_path(Path(model).expanduser(), cancel))
    found = replace(found, files=tuple(map(_absolute, found.files)), opens=found.opens.absolute())
    library.require_writable()
    with _alone(library.root, cancel):
        for left in library.root.glob(f"{WORK}*"):
            shutil.rmtree(left, ignore_errors=True)
        _Same(found, library, report, cancel).refuse()
        target = _free_place(library.root, found)
        if how == "copy":
            _copy(found, library.root, target, report, cancel)
        else:
            _refer(found, target)
    return _listed(library, target)


def _absolute(file: FoundFile) -> FoundFile:
    return replace(file, path=file.path.absolute())


def _copy(found: Found, root: Path, target: Path, report: Callable[[Progress], None], cancel: Cancel) -> None:
    check_room(root, found.nbytes, f"A copy of {found.name}")
    done = 0
    what = f"Copying {found.name}"

    def came(nbytes: int) -> None:
        nonlocal done
        done = min(done + nbytes, 2 * found.nbytes)
        report(Progress(what, done, 2 * found.nbytes))

    with storage(root):
        work = root / f"{WORK}{uuid.uuid4().hex}"
        work.mkdir()
    try:
        kept = []
        for file in found.all_files:
            name = made_safe(file.name)
            sha256 = copy_file(file.path, work / name, came, cancel)
            if file.sha256 and sha256 != file.sha256:
                raise ModelFileError(
                    f"{file.path} is damaged: {STORES[found.store]} knows it by another sha256. Download it again, "
                    "there or here."
                )
            if (work / name).stat().st_size != file.nbytes:
                raise ModelFileError(f"{file.path} changed while it was copied. Try again once it is whole.")
            kept.append(_kept(found, file, name, sha256, target.relative_to(root).as_posix()))
        opens = "" if found.opens.is_dir() else made_safe(found.weights.name)
        licence, day = "", datetime.now(UTC).date().isoformat()
        with storage(target):
            Provenance(target.name, opens, licence, day, tuple(kept)).write(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            rename(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _kept(found: Found, file: FoundFile, name: str, sha256: str, place: str) -> KeptFile:
    """Where it is from: what the Hub has can be fetched from there again; of others only the place is known."""
    promised = bool(file.sha256)
    if found.store == "hub" and found.revision:
        inner = found.folder and file.path.parent == found.weights.path.parent  # a tower may be in the outermost
        path = f"{found.folder}/{file.name}" if inner else file.name
        return KeptFile(name, file.nbytes, sha256, "hub", found.repository, found.revision, path, promised)
    return KeptFile(name, file.nbytes, sha256, IMPORTED, place, "", name, promised)


def _refer(found: Found, target: Path) -> None:
    path = target.with_name(target.name + LINK)
    with storage(found.weights.path):
        files = tuple(linked_file(file.path, file.sha256) for file in found.all_files)
    drive = drive_of(found.weights.path)
    tower = found.tower.path if found.tower is not None else None
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        Link(found.name, STORES[found.store], found.opens, drive, files, tower).write(path)


class _Same:
    """Whether the library has a model already: the same file, or another of the same bytes."""

    def __init__(self, found: Found, library: Library, report: Callable[[Progress], None], cancel: Cancel) -> None:
        self._found = found
        self._library = library
        self._report = report
        self._cancel = cancel
        self._own = found.weights.sha256

    def refuse(self) -> None:
        """Raises ModelFileError where it has."""
        own = self._found.weights
        for model in (*self._library.list(), *self._library.absent()):
            for path, nbytes, sha256 in self._files(model):
                if nbytes != own.nbytes:
                    continue
                if _real(path) == _real(own.path) or self._same_bytes(path, sha256):
                    raise ModelFileError(
                        f"{self._found.name} is in the library already, as {model.name}. Nothing was imported."
                    )

    def _files(self, model: LibraryModel) -> Iterator[tuple[Path, int, str]]:
        """Those of a model of the library, with their hashes as far as they are known."""
        if model.linked:
            link = read_link(self._library.root / f"{model.name}{LINK}")
            if link is not None:
                yield from ((file.path, file.nbytes, file.sha256) for file in link.files)
            return
        folder = model.path if model.path.is_dir() else model.path.parent
        if (kept := read_provenance(folder)) is not None:
            yield from ((folder / file.name, file.nbytes, file.sha256) for file in kept.files)
        elif model.path.is_dir():
            yield from ((path, path.stat().st_size, "") for path in sorted(model.path.glob("*.safetensors")))
        else:
            yield model.path, model.path.stat().st_size, ""

    def _same_bytes(self, path: Path, sha256: str) -> bool:
        """Files of one size are read where their hashes are not known."""
        try:
            self._own = self._own or self._read(self._found.weights.path)
            return self._own == (sha256 or self._read(path))
        except StorageError:
            return False

    def _read(self, path: Path) -> str:
        total = self._found.weights.nbytes
        done = 0

        def came(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            self._report(Progress(f"Comparing with {path.name}", min(done, total), total))

        return sha256_of(path, self._cancel, came)


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _free_place(root: Path, found: Found) -> Path:
    """The folder to be: that of the repository and the model, else another name like it where something is there."""
    *folders, last = [made_safe(step) for step in found.name.split("/") if step]
    folder = root.joinpath(*folders[-2:])
    if any(_is_taken(path) for path in (folder, *folder.parents) if path != root and path.is_relative_to(root)):
        folder = root
    for number in range(1, 1000):
        path = folder / (last if number == 1 else f"{last} ({number})")
        taken = (path, path.with_name(path.name + SUFFIX), path.with_name(path.name + LINK))
        if not any(other.exists() or other.is_symlink() for other in taken):
            return path
    raise StorageError(f"The library has a thousand models of the name {found.name}. Remove some, and try again.")


def _is_taken(path: Path) -> bool:
    """Whether nothing in `path` would be looked at, as it is a model itself, or a file."""
    return path.exists() and (not path.is_dir() or any((path / name).exists() for name in (PROVENANCE, CONFIG)))


def _listed(library: Library, target: Path) -> LibraryModel:
    name = target.relative_to(library.root).as_posix()
    for model in library.list():
        if model.name == name:
            return model
    raise StorageError(f"{target} is gone just after it was imported. Check the disk, and try again.")


@contextmanager
def _alone(root: Path, cancel: Cancel) -> Iterator[None]:
    """Within it no other process imports into the library; waits for one that does."""
    with storage(root):
        root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / LOCK)
    while not lock.is_locked:
        cancel.check()
        with storage(root / LOCK):
            try:
                lock.acquire(timeout=0.2)
            except Timeout:
                continue
    try:
        yield
    finally:
        lock.release()
