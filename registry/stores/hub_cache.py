"""The cache of the Hub's own tools, `models--<owner>--<name>/snapshots/<revision>/<path>`.

Each file there is a link to a blob that is named by its hash, or, where the system has no links, the file itself
(huggingface.co/docs, "Understand caching").
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from registry.stores.found import Found, FoundFile, Survey
from registry.stores.gather import is_tower, models_in
from registry.stores.walk import Walk

_PREFIX: Final = "models--"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def in_hub_cache(root: Path, cancel: Cancel | None = None) -> Survey:
    """Of a model in several revisions that are the same bytes, the newest alone. Raises `Cancelled`."""
    found: list[Found] = []
    sentence = ""
    for repository in _folders(root, _PREFIX):
        known: set[tuple[str, ...]] = set()
        for snapshot in _newest_first(repository):
            walk = Walk(snapshot, cancel, sha256=_hash_of)
            for model in _of_snapshot(walk, repository.name.removeprefix(_PREFIX).replace("--", "/")):
                key = tuple(os.path.realpath(file.path) for file in model.files)
                if key not in known:
                    known.add(key)
                    found.append(model)
            sentence = sentence or walk.sentence
    return Survey(tuple(found), sentence)


def _of_snapshot(walk: Walk, id: str) -> Iterator[Found]:
    """The towers in the repository's own folder are for the models in its other folders, too; a checkpoint in one of
    those is a part of something else."""
    towers: tuple[FoundFile, ...] = ()
    for folder, files in walk:
        path = folder.relative_to(walk.root).as_posix().removeprefix(".")
        if not path:
            towers = tuple(file for file in files if is_tower(file.name))
        for model in models_in(folder, files, "hub", id, repository=id, revision=walk.root.name, path=path):
            if model.opens != folder:
                yield replace(model, towers=tuple(dict.fromkeys(model.towers + towers)))
            elif not path:
                yield model


def _newest_first(repository: Path) -> list[Path]:
    """The revision that is named `main`, then the others by their time."""
    try:
        main = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        main = ""
    snapshots = _folders(repository / "snapshots", "")
    return sorted(snapshots, key=lambda path: (path.name != main, -_time(path), path.name))


def _folders(root: Path, prefix: str) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if path.name.startswith(prefix) and path.is_dir())
    except OSError:
        return []


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _hash_of(path: Path) -> str:
    """By the name of the blob that it links to; those of small files are git's."""
    try:
        blob = Path(os.readlink(path)).name
    except OSError:
        return ""
    return blob if _SHA256.fullmatch(blob) else ""
