"""Taking a model out of the library, and finding those in it that are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, StorageError
from registry.downloads.files import inside
from registry.library import LEVELS, Library, LibraryModel
from registry.links import SUFFIX as LINK
from registry.provenance import FILE, read_provenance


@dataclass(frozen=True)
class DamagedModel:
    """A model that `Library.list` leaves out: `files` are those that are damaged or of another size than they came."""

    name: str
    folder: Path
    files: tuple[str, ...]
    nbytes: int


def remove(library: Library, model: LibraryModel | DamagedModel) -> None:
    """Delete a model's files, and the folders above it that are empty then. What only the library's link leads to stays
    where it is.

    Raises ModelFileError where it is not in the library, StorageError where the disk refuses.
    """
    steps = model.name.split("/")
    folder = library.root.joinpath(*steps)
    path = model.folder if isinstance(model, DamagedModel) else model.path
    if isinstance(model, LibraryModel) and model.linked:
        path = folder.with_name(f"{folder.name}{LINK}")
    target = folder if folder == path or folder in path.parents else path
    if library.root not in target.parents:
        raise ModelFileError(f"{model.name} does not lie in the library ({library.root}): remove it where it is.")
    inside(library.root, *target.parent.relative_to(library.root).parts)
    try:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
        for above in target.parents:
            if above == library.root or any(above.iterdir()):
                break
            above.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(
            f"{model.name} could not be removed ({error.strerror or error}): close what uses it, and try again."
        ) from error


def damaged(library: Library) -> tuple[DamagedModel, ...]:
    """Those that Millstream downloaded and that are not whole any more, by name."""
    return tuple(sorted(_damaged(library.root, library.root, LEVELS), key=lambda model: model.name.casefold()))


def _damaged(root: Path, folder: Path, levels: int) -> Iterator[DamagedModel]:
    for path in folder.glob("*"):
        if path.name.startswith(".") or not path.is_dir():
            continue
        if (path / FILE).is_file():
            if (kept := read_provenance(path)) is None:
                continue
            wrong = [file.name for file in kept.files if file.damaged or _size(path / file.name) != file.nbytes]
            if wrong:
                nbytes = sum(file.nbytes for file in kept.files)
                yield DamagedModel(path.relative_to(root).as_posix(), path, tuple(wrong), nbytes)
        elif levels:
            yield from _damaged(root, path, levels - 1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
