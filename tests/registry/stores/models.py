"""Models on the disk, and the folders of other programs made of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Made:
    root: Path

    @property
    def plain(self) -> Path:
        return self.root / "plain.gguf"

    @property
    def other(self) -> Path:
        return self.root / "other.gguf"

    @property
    def parts(self) -> list[Path]:
        return sorted((self.root / "split").iterdir())

    @property
    def seeing(self) -> Path:
        return self.root / "seeing" / "tiny.gguf"

    @property
    def tower(self) -> Path:
        return self.root / "seeing" / "mmproj-tiny.gguf"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All that lies in a folder, with its time."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def put_in_hub(cache: Path, id: str, revision: str, files: dict[str, Path], *, links: bool = True) -> Path:
    """Lay out a repository at one revision as the Hub's tools do: → the snapshot."""
    repository = cache / f"models--{id.replace('/', '--')}"
    snapshot = repository / "snapshots" / revision
    for name, source in files.items():
        place = snapshot / name
        place.parent.mkdir(parents=True, exist_ok=True)
        blobs = repository / "blobs"
        blobs.mkdir(exist_ok=True)
        if links:
            shutil.copyfile(source, blobs / sha256(source))
            place.symlink_to(os.path.relpath(blobs / sha256(source), place.parent))
        else:
            shutil.copyfile(source, place)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    return snapshot


def put_in_ollama(root: Path, name: str, layers: dict[str, Path], **extra: object) -> Path:
    """Lay out a model "<host>/<namespace>/<model>/<tag>" as Ollama does: → its manifest."""
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    listed = []
    for kind, source in layers.items():
        shutil.copyfile(source, root / "blobs" / f"sha256-{sha256(source)}")
        listed.append(
            {
                "mediaType": f"application/vnd.ollama.image.{kind}",
                "digest": f"sha256:{sha256(source)}",
                "size": source.stat().st_size,
            }
        )
    manifest = root / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": listed} | extra))
    return manifest
