"""The repositories of a Hub on loopback, and what its API tells of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.hub_faults import BLOCK, Content

LFS = (".gguf", ".safetensors", ".bin", ".pt", ".pickle", "tokenizer.json")


@dataclass
class File:
    path: str
    content: Content
    sha256: str
    git_sha1: str

    @classmethod
    def of(cls, path: str, content: Content) -> File:
        digest = hashlib.sha256()
        git = hashlib.sha1(b"blob %d\0" % len(content))
        for first in range(0, len(content), BLOCK):
            block = content[first : first + BLOCK]
            digest.update(block)
            git.update(block)
        sha256 = digest.hexdigest()
        if path.endswith(LFS):
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
            git = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer)
        return cls(path, content, sha256, git.hexdigest())

    @property
    def in_lfs(self) -> bool:
        return self.path.endswith(LFS)

    @property
    def etag(self) -> str:
        return f'"{self.sha256 if self.in_lfs else self.git_sha1}"'

    def sibling(self, blobs: bool) -> dict[str, Any]:
        if not blobs:
            return {"rfilename": self.path}
        lfs = {"lfs": {"sha256": self.sha256, "size": len(self.content), "pointerSize": 134}} if self.in_lfs else {}
        return {"rfilename": self.path, "size": len(self.content), "blobId": self.git_sha1, **lfs}

    def entry(self) -> dict[str, Any]:
        lfs = {"lfs": {"oid": self.sha256, "size": len(self.content), "pointerSize": 134}} if self.in_lfs else {}
        return {"type": "file", "path": self.path, "size": len(self.content), "oid": self.git_sha1, **lfs}


@dataclass
class Repository:
    id: str
    commit: str
    files: dict[str, File]
    gated: bool
    private: bool
    facts: dict[str, Any]

    def info(self, blobs: bool) -> dict[str, Any]:
        return {
            **self.summary(),
            "sha": self.commit,
            "siblings": [file.sibling(blobs) for file in self.files.values()],
        }

    def summary(self) -> dict[str, Any]:
        return {
            "_id": hashlib.sha1(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            "modelId": self.id,
            "private": self.private,
            "gated": "manual" if self.gated else False,
            **self.facts,
        }
