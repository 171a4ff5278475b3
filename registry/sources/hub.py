"""The Hub as a source: its search, its repositories' files, and ranges of their bytes.

Addresses, session and the meaning of its answers are those of `huggingface_hub`. Its own download and retry loops are
not used: they cannot be cancelled, and the queue has its own. Nor are its headers, which tell the Hub what else is
installed, and for which it asks the Hub first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

import httpx2
from huggingface_hub import ModelInfo, hf_hub_url

from engine.cancel import Cancel
from engine.errors import DownloadError
from registry import tokens
from registry.paths import safe_id, safe_path
from registry.sources import hub_environment
from registry.sources.hub_answers import Answer, answer
from registry.sources.hub_errors import TOLD_OFFLINE, Asking
from registry.sources.source import Bytes, OfflineError, RemoteFile, Repository

MAX_JSON: Final = 64 << 20
"""Bytes of an answer of the API; the longest lists of files are some MB."""
MAX_FOUND: Final = 1000
MAX_PAGES: Final = 100
EXPAND: Final = ("downloads", "likes", "gated", "lastModified", "tags", "sha", "gguf", "config", "cardData")
"""What a search tells of each repository."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHA1: Final = re.compile(r"[0-9a-f]{40}")
_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


@dataclass(frozen=True)
class Hub:
    """A `Source`. `endpoint` is without a "/" at its end; `token` goes to that origin alone."""

    endpoint: str = hub_environment.ENDPOINT
    token: str | None = field(default=None, repr=False)
    offline: bool = False

    @classmethod
    def from_environment(cls) -> Hub:
        """As HF_ENDPOINT, HF_TOKEN or the keyring, and HF_HUB_OFFLINE say now. A keyring may wait for the person.

        Raises `DownloadError` where HF_ENDPOINT is no web address.
        """
        return cls(hub_environment.endpoint(), tokens.get(), hub_environment.offline())

    @property
    def name(self) -> str:
        return "hub"

    def search(self, words: str, limit: int, cancel: Cancel) -> tuple[Repository, ...]:
        """The repositories with GGUF files in whose names the words are, those most often downloaded first."""
        limit = max(0, min(limit, MAX_FOUND))
        asking = self._asking()
        params: Mapping[str, str | list[str]] | None = {
            "search": words,
            "filter": "gguf",
            "sort": "downloads",
            "limit": str(limit),
            "expand": list(EXPAND),
        }
        found: list[Repository] = []
        for _ in range(MAX_PAGES):
            if params is None or len(found) >= limit:
                break
            page, params = self._json(f"{self.endpoint}/api/models", params, asking, cancel)
            if not isinstance(page, list):
                raise _not_understood(asking)
            found += [
                repository for item in page if (repository := _listed(_model_info(item, asking), self.name)) is not None
            ]
        return tuple(found[:limit])

    def repository(self, id: str, cancel: Cancel, revision: str | None = None) -> Repository:
        asking = self._asking(safe_id(id))
        at = f"/revision/{quote(revision, safe='')}" if revision is not None else ""
        item, _ = self._json(f"{self.endpoint}/api/models/{id}{at}", {"blobs": "true"}, asking, cancel)
        info = _model_info(item, asking)
        commit = info.sha or ""
        if not _SHA1.fullmatch(commit):
            raise _not_understood(asking)
        files = tuple(
            RemoteFile(
                source=self.name,
                repository=id,
                revision=commit,
                path=sibling.rfilename,
                nbytes=sibling.size,
                sha256=_digest(_SHA256, sibling.lfs["sha256"]) if sibling.lfs else "",
                git_sha1="" if sibling.lfs else _digest(_SHA1, sibling.blob_id),
            )
            for sibling in info.siblings or ()
            if isinstance(sibling.rfilename, str) and isinstance(sibling.size, int) and sibling.size >= 0
        )
        return _described(info, self.name, id, files)

    @contextmanager
    def open(self, file: RemoteFile, first: int, cancel: Cancel, last: int | None = None) -> Iterator[Bytes]:
        """Also raises `GoneError` where the Hub's file is not the one that was looked up, by its hash or its size."""
        safe_id(file.repository)
        safe_path(file.path)
        if first >= file.nbytes:
            cancel.check()
            yield Bytes(first, file.nbytes, iter(()))
            return
        asking = self._asking(file.repository, file.path)
        url = hf_hub_url(file.repository, file.path, revision=file.revision, endpoint=self.endpoint)
        part = {"Range": f"bytes={first}-{'' if last is None else last}"} if first or last is not None else {}
        with self._ask(url, asking, cancel, headers=part) as found:
            start = _start(found, file, first, asking)
            end = file.nbytes if last is None else min(last + 1, file.nbytes)
            yield Bytes(start, file.nbytes, _at_most(end - start, found.chunks))

    @contextmanager
    def _ask(
        self,
        url: str,
        asking: Asking,
        cancel: Cancel,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | list[str]] | None = None,
    ) -> Iterator[Answer]:
        if self.offline:
            raise OfflineError(TOLD_OFFLINE)
        # Ranges are of the file's own bytes, not of packed ones.
        own = {"User-Agent": "millstream", "Accept-Encoding": "identity"}
        if self.token:
            own["Authorization"] = f"Bearer {self.token}"
        with answer(url, asking, cancel, headers={**own, **(headers or {})}, params=params) as found:
            yield found

    def _json(
        self, url: str, params: Mapping[str, str | list[str]], asking: Asking, cancel: Cancel
    ) -> tuple[Any, Mapping[str, str | list[str]] | None]:
        """An answer of the API, and the parameters that ask for the next page, if there is one."""
        body = bytearray()
        with self._ask(url, asking, cancel, params=params) as found:
            if _is_page(found):
                raise asking.not_the_hub()
            for chunk in found.chunks:
                body += chunk
                if len(body) > MAX_JSON:
                    raise DownloadError(
                        f"The Hub's answer about {asking.what} is longer than {MAX_JSON >> 20} MB, which no model's is."
                    )
            following = found.links.get("next", {}).get("url")
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if value is None:
            raise _not_understood(asking)
        return value, _params(following) if following else None

    def _asking(self, repository: str = "", path: str = "") -> Asking:
        page = httpx2.URL(self.endpoint).copy_with(userinfo=b"", query=None)
        return Asking(str(page).rstrip("/"), bool(self.token), repository, path)


def _start(found: Answer, file: RemoteFile, first: int, asking: Asking) -> int:
    """Where the bytes begin: at `first`, or at 0. Checks all that the answer says of the file before it is read."""
    known = file.sha256 or file.git_sha1
    pattern = _SHA256 if file.sha256 else _SHA1
    if known and pattern.fullmatch(found.etag) and found.etag != known:
        raise asking.changed()
    if _is_page(found) and not file.path.lower().endswith((".html", ".htm")):
        raise asking.not_the_hub()
    if found.status == 206:
        match = _RANGE.fullmatch(found.headers.get("Content-Range", "").strip())
        if match is None or int(match[1]) != first:
            raise DownloadError(f"The Hub sent another part of {asking.what} than was asked for. Try again.")
        start, total = first, int(match[3])
    else:
        start, total = 0, int(length) if (length := found.headers.get("Content-Length", "")).isdigit() else file.nbytes
    if total != file.nbytes:
        raise DownloadError(
            f"The Hub sends {total} bytes of {asking.what}, which has {file.nbytes} in its list of files. Try again, "
            "or look the model up again."
        )
    return start


def _at_most(nbytes: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What was asked for, of a server that sends more."""
    for chunk in chunks:
        if nbytes:
            yield chunk[:nbytes]
        if len(chunk) > nbytes:
            return
        nbytes -= len(chunk)


def _is_page(found: Answer) -> bool:
    return found.headers.get("Content-Type", "").lower().startswith(("text/html", "application/xhtml"))


def _params(following: str) -> Mapping[str, str | list[str]]:
    """Those of the next page. A mirror may name the Hub itself there, which is not who was asked."""
    query = httpx2.URL(following).params
    return {name: query.get_list(name) for name in query}


def _model_info(item: object, asking: Asking) -> ModelInfo:
    try:
        return cast(Callable[..., ModelInfo], ModelInfo)(**cast(dict[str, Any], item))
    except (TypeError, KeyError, ValueError, AttributeError):
        raise _not_understood(asking) from None


def _not_understood(asking: Asking) -> DownloadError:
    return DownloadError(f"What the Hub answered about {asking.what} is not understood here. Try again later.")


def _listed(info: ModelInfo, source: str) -> Repository | None:
    """Of a search's answer; None for a name that cannot be used."""
    try:
        return _described(info, source, safe_id(str(info.id)), ())
    except DownloadError:
        return None


def _described(info: ModelInfo, source: str, id: str, files: tuple[RemoteFile, ...]) -> Repository:
    tags = tuple(tag for tag in info.tags or () if isinstance(tag, str))
    named = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    card = getattr(info.card_data, "license", None)
    gguf = info.gguf if isinstance(info.gguf, dict) else {}
    config = info.config if isinstance(info.config, dict) else {}
    architecture = gguf.get("architecture") or ""
    family = architecture or config.get("model_type") or ""
    return Repository(
        source=source,
        id=id,
        revision=info.sha or "",
        licence=named or (card if isinstance(card, str) else ""),
        family=family if isinstance(family, str) else "",
        architecture=architecture if isinstance(architecture, str) else "",
        gated=bool(info.gated),
        downloads=_count(info.downloads),
        likes=_count(info.likes),
        updated=info.last_modified.date().isoformat() if info.last_modified else "",
        tags=tags,
        files=files,
    )


def _count(number: object) -> int:
    return number if isinstance(number, int) else 0


def _digest(pattern: re.Pattern[str], text: object) -> str:
    return text if isinstance(text, str) and pattern.fullmatch(text) else ""
