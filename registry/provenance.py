"""Where a downloaded model is from, kept in its folder: by it the model is listed, verified again and repaired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from registry.saved import Fields, read_json, write_json

FILE = ".millstream.json"


@dataclass(frozen=True)
class KeptFile:
    """One file: `name` is its path in the model's folder, with "/" between parts; `path` the one in the repository.

    `sha256` is what the source promised, or, where it promised none, what was found when the file had come.
    """

    name: str
    nbytes: int
    sha256: str
    source: str
    repository: str
    revision: str
    path: str
    promised: bool
    damaged: bool = False


@dataclass(frozen=True)
class Provenance:
    """`opens` is the name of the file by which the model is opened, "" where that is the folder itself.

    `day` is when it was downloaded, "2026-05-31".
    """

    name: str
    opens: str
    licence: str
    day: str
    files: tuple[KeptFile, ...]

    @property
    def damaged(self) -> tuple[str, ...]:
        """The files that were found to be other than they came. Such a model is not offered."""
        return tuple(file.name for file in self.files if file.damaged)

    @property
    def repository(self) -> str:
        return self.files[0].repository

    def marked(self, damaged: frozenset[str]) -> Provenance:
        """With these files, and no others, called damaged."""
        return replace(self, files=tuple(replace(file, damaged=file.name in damaged) for file in self.files))

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        write_json(
            folder / FILE,
            {
                "name": self.name,
                "opens": self.opens,
                "licence": self.licence,
                "day": self.day,
                "files": [dict(vars(file)) for file in self.files],
            },
        )


def read_provenance(folder: Path) -> Provenance | None:
    """That of the model in `folder`; `None` where Millstream did not download it, or what it wrote is damaged."""
    try:
        record = read_json(folder / FILE)
        files = tuple(_kept(fields) for fields in record.each("files"))
        opens = record.text("opens")
        if not files or opens not in ("", *(file.name for file in files)):
            return None
        return Provenance(record.text("name"), opens, record.text("licence"), record.text("day"), files)
    except (OSError, ValueError):
        return None


def _kept(fields: Fields) -> KeptFile:
    texts = fields.texts("name", "sha256", "source", "repository", "revision", "path")
    steps = texts["name"].split("/")
    if any(step in ("", ".", "..") or "\\" in step or ":" in step for step in steps):
        raise ValueError("a name that leads out of the folder")
    return KeptFile(
        nbytes=fields.count("nbytes"), promised=fields.flag("promised"), damaged=fields.flag("damaged"), **texts
    )
