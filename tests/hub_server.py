"""A Hub on loopback: a real HTTP server that speaks what `huggingface_hub` asks for, with faults by script.

    with HubServer() as hub:
        hub.use(monkeypatch)  # HF_ENDPOINT and the like, for this process; `hub.environment()` is for others
        hub.add("org/name", {"model.gguf": b"…", "big.gguf": Big(50 << 20), "config.json": b"{}"})
        hub.fault("org/name/model.gguf", CutOff(1000), times=2)
        …
        assert hub.fetched("org/name/model.gguf") == [(0, 1000), (1000, 5000)]

Two servers of two origins: `hub.url` answers the API and refuses or redirects, `hub.cdn_url` sends the bytes of large
files (those in LFS, by their suffix) from signed addresses, as the real ones do. Small files come from the Hub itself,
by a relative redirect.

* `add(id, files, …)` makes or replaces a repository; `replace(id, path, content)` puts other bytes into one file of the
  same revision, which changes its hash and ETag. `commit(id)` is the newest revision.
* `hub.token` is the one good token ("" takes none). `gated=True` asks for it; `private=True` hides the repository.
* `fault(where, fault, times=1, at="")`: the next `times` requests meet the fault (see `hub_faults`). `where` is
  "org/name/path" for a file's bytes, or the path of an API request ("/api/models", "/api/models/org/name"). Faults of
  one place queue up in the order they were given. What spoils the bytes acts where they are sent; the others act on the
  Hub, or with `at="cdn"` on the CDN.
* `requests` is the record of what was asked, each an `Asked`; `fetched(where)` are the spans of bytes of a file that
  were really sent. Where a client was killed, or ended early, a span includes what lay in the system's buffers (up to
  some MB): compare the starts of the ranges then.
* `HubServer(certificate=path)` speaks TLS with the key and the certificate of a PEM file.
* `release()` lets go of what hangs; leaving the `with` does so, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.hub_faults import Content, Fault, spoils_bytes
from tests.hub_files import File, Repository
from tests.hub_handler import Asked, LoopbackServer


class HubServer:
    """See the module's text."""

    def __init__(self, token: str = "hf_goodgoodgoodgoodgood", certificate: Path | None = None) -> None:
        self.token = token
        self.page = 1000
        """Entries of a page of the tree; a search has as many as it asks for, and at most this."""
        self.requests: list[Asked] = []
        self.released = threading.Event()
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._repositories: dict[str, Repository] = {}
        self._faults: dict[tuple[str, str], list[Fault]] = {}
        self._servers = {name: LoopbackServer(self, name, certificate) for name in ("hub", "cdn")}

    @property
    def url(self) -> str:
        return self._servers["hub"].url

    @property
    def cdn_url(self) -> str:
        return self._servers["cdn"].url

    def __enter__(self) -> HubServer:
        for server in self._servers.values():
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.release()
        for server in self._servers.values():
            server.stop()

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Point this process's environment at the server, and away from the person's own tokens and proxies."""
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in self.environment().items():
            monkeypatch.setenv(name, value)

    def environment(self) -> dict[str, str]:
        """What another process needs in its environment."""
        return {"HF_ENDPOINT": self.url, "HF_TOKEN_PATH": os.devnull, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def add(
        self,
        id: str,
        files: Mapping[str, Content],
        *,
        gated: bool = False,
        private: bool = False,
        licence: str = "apache-2.0",
        family: str = "llama",
        downloads: int = 0,
        likes: int = 0,
        updated: str = "2026-05-31T08:09:10.000Z",
        tags: tuple[str, ...] = ("gguf",),
    ) -> None:
        facts = {
            "downloads": downloads,
            "likes": likes,
            "lastModified": updated,
            "tags": [*tags, *([f"license:{licence}"] if licence else [])],
            "pipeline_tag": "text-generation",
            **({"cardData": {"license": licence}} if licence else {}),
            **({"gguf": {"architecture": family, "total": 1}} if family else {}),
        }
        made = {path: File.of(path, content) for path, content in files.items()}
        text = json.dumps([id, [(file.path, file.sha256) for file in made.values()]])
        self._repositories[id] = Repository(id, hashlib.sha1(text.encode()).hexdigest(), made, gated, private, facts)

    def replace(self, id: str, path: str, content: Content) -> None:
        self._repositories[id].files[path] = File.of(path, content)

    def commit(self, id: str) -> str:
        return self._repositories[id].commit

    def sha256(self, where: str) -> str:
        """Of the file "org/name/path"."""
        return self._file(where).sha256

    def git_sha1(self, where: str) -> str:
        return self._file(where).git_sha1

    def fault(self, where: str, fault: Fault, times: int = 1, at: str = "") -> None:
        """`at` is "hub" or "cdn"; without it, whichever the fault is for."""
        if not at:
            at = "cdn" if spoils_bytes(fault) and self._file(where).in_lfs else "hub"
        with self.lock:
            self._faults.setdefault((at, where), []).extend([fault] * times)

    def clear(self) -> None:
        """Forget the faults that have not happened yet."""
        with self.lock:
            self._faults.clear()

    def release(self) -> None:
        self.released.set()

    def fetched(self, where: str) -> list[tuple[int, int]]:
        """The spans (first, end) of a file that were sent, in the order they were asked for."""
        with self.lock:
            asked = list(self.requests)
        return [(each.first, each.first + each.sent) for each in asked if each.file == where and each.sent]

    # What the handlers ask.

    def next_fault(self, at: str, where: str) -> Fault | None:
        with self.lock:
            queue = self._faults.get((at, where))
            return queue.pop(0) if queue else None

    def repository(self, id: str) -> Repository | None:
        return self._repositories.get(id)

    def repositories(self) -> list[Repository]:
        return list(self._repositories.values())

    def by_hash(self, where: str, sha256: str) -> File | None:
        try:
            file = self._file(where)
        except KeyError:
            return None
        return file if file.sha256 == sha256 else None

    def _file(self, where: str) -> File:
        owner, name, path = where.split("/", 2)
        return self._repositories[f"{owner}/{name}"].files[path]
