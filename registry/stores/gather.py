"""The models of one folder: a split one is one, and a vision tower is a partner."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engine.errors import MillstreamError
from engine.formats import open_index
from registry.items import CHECKPOINT, Offer, offers
from registry.sources.source import RemoteFile, Repository
from registry.stores.found import Found, FoundFile, Store

UNSAFE: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""PyTorch's own formats, which can run code when they are read."""
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")


def models_in(
    folder: Path,
    files: Sequence[FoundFile],
    store: Store,
    name: str,
    *,
    repository: str = "",
    revision: str = "",
    path: str = "",
) -> list[Found]:
    """The models among the files that lie in `folder`, which is `path` in the Hub's `repository`. `name` is what comes
    before a model's own in its name."""
    at = {file.name: file for file in files}
    listed = tuple(RemoteFile(store, repository, revision, file.name, file.nbytes, file.sha256) for file in files)
    found = []
    for offer in offers(Repository(store, repository or name or folder.name, revision, files=listed)):
        own = tuple(at[file.path] for file in offer.weights)
        whole = offer.kind == CHECKPOINT
        opens = folder if whole else own[0].path
        # In a repository there may be other models beside a checkpoint; else its folder's name is its own.
        of_folder = name.rpartition("/")[2] if store in ("hub", "lmstudio") else ""
        label = of_folder if whole else stem(own[0].name)
        found.append(
            Found(
                name="/".join(filter(None, (name, label))) or folder.name,
                store=store,
                files=own,
                opens=opens,
                towers=tuple(at[file.path] for file in offer.towers),
                repository=repository,
                revision=revision,
                folder=path,
                problem=_problem(offer, opens),
            )
        )
    return found


def is_tower(name: str) -> bool:
    """Whether a file is named as llama.cpp names vision towers."""
    return "mmproj" in name.lower() and name.lower().endswith(".gguf")


def stem(name: str) -> str:
    """A file's name without its suffix and its number among the parts."""
    return _PART.sub("", name.rpartition(".")[0] or name)


def _problem(offer: Offer, opens: Path) -> str:
    """What the engine says of files in which something is missing: here they lie on a disk, and not in a repository."""
    if not offer.problem:
        return ""
    try:
        open_index(opens)
    except MillstreamError as error:
        return str(error)
    return ""
