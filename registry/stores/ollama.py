"""Ollama's models: `manifests/<host>/<namespace>/<model>/<tag>` is JSON that lists layers.

Each is a blob that is named by its hash (github.com/ollama/ollama, "types/model/name.go" and "server/manifest.go").
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from engine.cancel import Cancel
from registry.saved import Fields, read_json
from registry.stores.found import Found, FoundFile, Survey
from registry.stores.walk import Walk

_MODEL: Final = "application/vnd.ollama.image.model"
_PROJECTOR: Final = "application/vnd.ollama.image.projector"
_ADAPTER: Final = "application/vnd.ollama.image.adapter"
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})")
_LARGEST: Final = 1 << 20
"""Bytes of a manifest."""
_USUAL: Final = ("registry.ollama.ai", "library")


def in_ollama(root: Path, cancel: Cancel | None = None) -> Survey:
    """What is under `root`, Ollama's models folder. Raises `Cancelled`."""
    walk = Walk(root / "manifests", cancel, depth=4)
    found = []
    for _, files in walk:
        for file in files:
            steps = file.path.relative_to(walk.root).parts
            if len(steps) == 4 and file.nbytes <= _LARGEST and (model := _model(root / "blobs", file.path, steps)):
                found.append(model)
    return Survey(tuple(found), walk.sentence)


def _model(blobs: Path, manifest: Path, steps: tuple[str, ...]) -> Found | None:
    """None for what has no weights, such as a model that runs elsewhere, and for a damaged manifest."""
    host, space, model, tag = steps
    name = "/".join([step for step, usual in zip((host, space), _USUAL, strict=True) if step != usual] + [model])
    try:
        layers = read_json(manifest).each("layers")
        weights = [_blob(blobs, layer, f"{model}-{tag}.gguf") for layer in layers if layer.text("mediaType") == _MODEL]
        towers = [
            _blob(blobs, layer, f"mmproj-{model}-{tag}.gguf")
            for layer in layers
            if layer.text("mediaType") == _PROJECTOR
        ]
        adapted = any(layer.text("mediaType") == _ADAPTER for layer in layers)
    except (OSError, ValueError):
        return None
    if not weights:
        return None
    problem = ""
    missing = next((blob for blob, nbytes in (*weights, *towers) if _size(blob.path) != nbytes), None)
    if missing is not None:
        problem = (
            f"Ollama does not have {name}:{tag} whole: {missing.path.name[:19]}… is missing or too short. Let Ollama "
            "pull it again."
        )
    elif adapted or len(weights) > 1:
        problem = f"{name}:{tag} is put together from several files by Ollama itself, which is not done here."
    return Found(
        name=f"{name}:{tag}",
        store="ollama",
        files=tuple(blob for blob, _ in weights),
        opens=weights[0][0].path,
        tower=towers[0][0] if towers else None,
        problem=problem,
    )


def _blob(blobs: Path, layer: Fields, name: str) -> tuple[FoundFile, int]:
    """The file of a layer, and the bytes that it should have. Raises ValueError for what is no hash."""
    if (digest := _DIGEST.fullmatch(layer.text("digest"))) is None:
        raise ValueError("not a digest")
    nbytes = layer.count("size")
    return FoundFile(name, blobs / f"sha256-{digest[1]}", nbytes, digest[1]), nbytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
