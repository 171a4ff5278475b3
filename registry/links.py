"""Models that stay where they are: a record in the library names their files.

It is a record and not a link of the file system's, which Windows does not let everybody make, and which says nothing
of what it led to once that is gone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from registry.saved import Fields, read_json, write_json

SUFFIX: Final = ".link.json"


@dataclass(frozen=True)
class LinkedFile:
    """`modified` is in nanoseconds; `sha256` is "" where it is not known."""

    path: Path
    nbytes: int
    modified: int
    sha256: str


@dataclass(frozen=True)
class Link:
    """`opens` is what the model is opened by: one of `files`, or their folder. `drive` is where the drive that they are
    on was joined to the others. `store` is whose they are, in a person's words."""

    name: str
    store: str
    opens: Path
    drive: Path
    files: tuple[LinkedFile, ...]
    tower: Path | None = None

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    def problem(self) -> str:
        """Why the files are not those that were imported, as a sentence; "" where they are, by their sizes.

        Their times are not asked: some drives keep them only within seconds, or an hour off in summer.
        """
        for file in self.files:
            size = _size(file.path)
            if size == file.nbytes:
                continue
            if size is not None:
                return (
                    f"{file.path} has changed since it was imported. Remove the model from the library, and import it "
                    "again."
                )
            if not _is_joined(self.drive):
                return f"{self.name} is on a drive that is not there ({self.drive}). Connect it, and try again."
            return (
                f"{file.path} is gone: it was moved or deleted. Put it back, or remove the model from the library and "
                "import it again."
            )
        return ""

    def write(self, path: Path) -> None:
        """Raises OSError."""
        write_json(
            path,
            {
                "name": self.name,
                "store": self.store,
                "opens": str(self.opens),
                "drive": str(self.drive),
                "tower": str(self.tower or ""),
                "files": [dict(vars(file), path=str(file.path)) for file in self.files],
            },
        )


def linked_file(path: Path, sha256: str = "") -> LinkedFile:
    """As it is now. Raises OSError."""
    status = path.stat()
    return LinkedFile(path, status.st_size, status.st_mtime_ns, sha256)


def read_link(path: Path) -> Link | None:
    """None where it is damaged."""
    try:
        record = read_json(path)
        files = tuple(_file(fields) for fields in record.each("files"))
        tower = record.text("tower")
        return Link(
            record.text("name"),
            record.text("store"),
            Path(record.text("opens")),
            Path(record.text("drive")),
            files,
            Path(tower) if tower else None,
        )
    except (OSError, ValueError):
        return None


def drive_of(path: Path) -> Path:
    """The folder, at or above `path`, in which the drive that it is on was mounted."""
    return next((folder for folder in path.parents if os.path.ismount(folder)), Path(path.anchor))


def _is_joined(drive: Path) -> bool:
    try:
        return os.path.ismount(drive) and drive.exists()
    except (OSError, ValueError):
        return False


def _size(path: Path) -> int | None:
    """None where nothing can be found there."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def _file(fields: Fields) -> LinkedFile:
    return LinkedFile(
        Path(fields.text("path")), fields.count("nbytes"), fields.count("modified"), fields.text("sha256")
    )
