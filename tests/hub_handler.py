"""How a Hub on loopback answers: see `hub_server`."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tests.hub_faults import (
    BLOCK,
    Content,
    CutOff,
    Fault,
    Hang,
    LoginPage,
    NoRange,
    Redirect,
    Slow,
    Status,
    WrongBytes,
    WrongLength,
    spoils_bytes,
)
from tests.hub_files import File, Repository

if TYPE_CHECKING:
    from tests.hub_server import HubServer

PIECE = 1 << 16
LOOP = "/loop"
SIGNATURE = "secretsignature"
"""In the signed addresses of the CDN: must never be seen in an error or a log."""
LOGIN_PAGE = b"<!DOCTYPE html><html><body>Welcome to the hotel. Please sign in.</body></html>"


@dataclass
class Asked:
    """One request and how it was answered. `path` is decoded and without its query; header names are in lower case.

    `file` is "org/name/path" of a request for a file, else "". `first` and `sent` tell which bytes of it went out.
    """

    host: str
    method: str
    path: str
    query: str
    headers: dict[str, str]
    file: str = ""
    status: int = 0
    first: int = 0
    sent: int = 0
    fault: Fault | None = None

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


class LoopbackServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub: HubServer, name: str, certificate: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub = hub
        self.name = name
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server_port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The first read shakes hands, in the request's own thread.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                _shut(connection)
        end = time.monotonic() + 5
        while self._open and time.monotonic() < end:
            time.sleep(0.002)
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._lock:
            self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LoopbackServer
    asked: Asked

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked = Asked(self.server.name, self.command, unquote(address.path), address.query, headers)
        with self.hub.lock:
            self.hub.requests.append(self.asked)
        if address.path == LOOP:
            self.answer(302, {"Location": LOOP})
        elif self.server.name == "cdn":
            self.cdn(address.path, address.query)
        elif address.path.startswith("/api/resolve-cache/models/"):
            self.small(address.path)
        elif address.path.startswith("/api/"):
            self.api(unquote(address.path), parse_qs(address.query))
        else:
            self.resolve(address.path)

    do_HEAD = do_GET

    @property
    def hub(self) -> HubServer:
        return self.server.hub

    # The API.

    def api(self, path: str, query: dict[str, list[str]]) -> None:
        if self.spoiled(path):
            return
        if path == "/api/models":
            self.search(query)
            return
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+)(?:/(.*))?)?", path)
        if match is None:
            self.refuse(404, "", "Sorry, we can't find the page you are looking for.")
            return
        id, what, revision, folder = match.groups()
        repository = self.allowed(id)
        if repository is None or not self.known(repository, revision):
            return
        if what == "tree":
            self.tree(repository, folder or "", query)
        else:
            self.json(repository.info(query.get("blobs") == ["true"]))

    def search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].casefold().split()
        wanted = query.get("filter", [])
        found = [
            each
            for each in self.hub.repositories()
            if all(word in each.id.casefold() for word in words)
            and all(tag in each.facts["tags"] for tag in wanted)
            and (not each.private or self.has_token())
        ]
        if sort := query.get("sort"):
            found.sort(key=lambda each: each.facts[sort[0]], reverse=True)
        expand = query.get("expand")
        keep = {"_id", "id", "modelId", *expand} if expand else {"_id", "id", "modelId", "downloads", "likes", "tags"}
        entries = [{name: fact for name, fact in each.info(False).items() if name in keep} for each in found]
        limit = min(int(query.get("limit", ["1000"])[0]), self.hub.page)
        self.paged(entries, limit, query)

    def tree(self, repository: Repository, folder: str, query: dict[str, list[str]]) -> None:
        inside = f"{folder}/" if folder else ""
        files = [file.entry() for path, file in repository.files.items() if path.startswith(inside)]
        if folder and not files:
            self.refuse(404, "EntryNotFound", f"{folder} does not exist on this revision")
            return
        folders = dict.fromkeys(
            entry["path"][: at.end() - 1] for entry in files for at in re.finditer("/", entry["path"][len(inside) :])
        )
        entries = [{"type": "directory", "path": path, "oid": "0" * 40, "size": 0} for path in folders] + files
        if query.get("recursive") != ["true"]:
            entries = [entry for entry in entries if "/" not in entry["path"][len(inside) :]]
        self.paged(entries, self.hub.page, query)

    def paged(self, entries: list[dict[str, Any]], limit: int, query: dict[str, list[str]]) -> None:
        first = int(query.get("cursor", ["0"])[0])
        headers = {}
        if first + limit < len(entries):
            more = urlencode({**query, "cursor": first + limit}, doseq=True)
            headers["Link"] = f'<{self.hub.url}{quote(self.asked.path)}?{more}>; rel="next"'
        self.json(entries[first : first + limit], headers)

    # Files.

    def resolve(self, path: str) -> None:
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if match is None:
            self.refuse(404, "", "Sorry, we can't find the page you are looking for.")
            return
        id, revision, name = (unquote(part) for part in match.groups())
        self.asked.file = f"{id}/{name}"
        if self.spoiled(self.asked.file):
            return
        repository = self.allowed(id, bytes_too=True)
        if repository is None or not self.known(repository, revision):
            return
        file = repository.files.get(name)
        commit = {"X-Repo-Commit": repository.commit}
        if file is None:
            self.refuse(404, "EntryNotFound", "Entry not found", commit)
        elif file.in_lfs:
            signed = urlencode({"where": self.asked.file, "X-Amz-Signature": SIGNATURE})
            location = f"{self.hub.cdn_url}/lfs/{file.sha256}?{signed}"
            linked = {"X-Linked-Size": str(len(file.content)), "X-Linked-Etag": file.etag, "Accept-Ranges": "bytes"}
            self.answer(302, {**commit, **linked, "Location": location})
        else:
            location = f"/api/resolve-cache/models/{id}/{repository.commit}/{quote(name)}"
            self.answer(307, {**commit, "ETag": file.etag, "Location": location})

    def small(self, path: str) -> None:
        owner, name, _, inside = (unquote(part) for part in path.split("/", 4)[-1].split("/", 3))
        repository = self.allowed(f"{owner}/{name}", bytes_too=True)
        if repository is not None:
            self.asked.file = f"{owner}/{name}/{inside}"
            commit = {"X-Repo-Commit": repository.commit}
            self.bytes_of(repository.files[inside], self.hub.next_fault("hub", f"bytes:{self.asked.file}"), commit)

    def cdn(self, path: str, query: str) -> None:
        asked = parse_qs(query)
        where = asked.get("where", [""])[0]
        file = self.hub.by_hash(where, path.removeprefix("/lfs/"))
        if file is None or asked.get("X-Amz-Signature") != [SIGNATURE]:
            self.answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        self.asked.file = where
        fault = self.hub.next_fault("cdn", where)
        if not self.spoil(fault):
            self.bytes_of(file, fault, {})

    def bytes_of(self, file: File, fault: Fault | None, headers: dict[str, str]) -> None:
        self.asked.fault = fault
        total = len(file.content)
        first, end, status = 0, total, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.asked.range or "")
        current = self.asked.headers.get("if-range", file.etag) == file.etag
        if wanted and current and not isinstance(fault, NoRange):
            first, end, status = int(wanted[1]), min(total, int(wanted[2] or total) + 1), 206
            if first >= end:
                self.answer(416, {"Content-Range": f"bytes */{total}"})
                return
            headers = {**headers, "Content-Range": f"bytes {first}-{end - 1}/{total}"}
        length = end - first + (fault.extra if isinstance(fault, WrongLength) else 0)
        accept = {} if isinstance(fault, NoRange) else {"Accept-Ranges": "bytes"}
        self.asked.first = first
        self.head(
            status,
            {**headers, **accept, "ETag": file.etag, "Content-Type": "application/octet-stream"},
            length,
        )
        if self.command != "HEAD":
            self.body(file.content, first, min(end, first + length), fault)
            if length > end - first:
                self.close_connection = True

    def body(self, content: Content, first: int, end: int, fault: Fault | None) -> None:
        for piece in _pieces(content, first, end, fault):
            if isinstance(fault, CutOff | Hang):
                piece = piece[: fault.after - self.asked.sent]
            if isinstance(fault, Slow) and self.hub.closing.wait(len(piece) / fault.rate):
                break
            self.asked.sent += len(piece)
            try:
                self.wfile.write(piece)
            except OSError:
                self.asked.sent -= len(piece)
                self.close_connection = True
                return
            if isinstance(fault, CutOff | Hang) and self.asked.sent == fault.after:
                if isinstance(fault, Hang):
                    self.hub.released.wait()
                self.close_connection = True
                return

    # Answers.

    def allowed(self, id: str, bytes_too: bool = False) -> Repository | None:
        """The repository, or an answer that refuses it."""
        repository = self.hub.repository(id)
        sent = self.asked.headers.get("authorization")
        if sent is not None and not self.has_token():
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and sent is None):
            self.refuse(404 if sent else 401, "RepoNotFound", "Repository not found")
        elif repository.gated and bytes_too and sent is None:
            self.refuse(
                401, "GatedRepo", f"Access to model {id} is restricted. You must have access to it and be authenticated"
            )
        else:
            return repository
        return None

    def known(self, repository: Repository, revision: str | None) -> bool:
        if revision in (None, "main", repository.commit):
            return True
        self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return False

    def has_token(self) -> bool:
        return bool(self.hub.token) and self.asked.headers.get("authorization") == f"Bearer {self.hub.token}"

    def spoiled(self, where: str) -> bool:
        """Whether a fault took the place of the answer."""
        fault = self.hub.next_fault("hub", where)
        if fault is not None and spoils_bytes(fault):
            self.hub.fault(f"bytes:{where}", fault, at="hub")  # for the request that the redirect leads to
            return False
        return self.spoil(fault)

    def spoil(self, fault: Fault | None) -> bool:
        self.asked.fault = fault
        if isinstance(fault, Status):
            self.answer(fault.code, dict(fault.headers), fault.body)
        elif isinstance(fault, Redirect):
            self.answer(302, {"Location": fault.location or f"{self.server.url}{LOOP}"})
        elif isinstance(fault, LoginPage):
            self.answer(200, {"Content-Type": "text/html; charset=utf-8"}, LOGIN_PAGE)
        elif isinstance(fault, Hang) and not spoils_bytes(fault):
            self.hub.released.wait()
            self.close_connection = True
        else:
            return False
        return True

    def refuse(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        error = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
        self.json({"error": message}, {**(headers or {}), **error}, status)

    def json(self, value: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self.answer(status, {**(headers or {}), "Content-Type": "application/json"}, json.dumps(value).encode())

    def answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.head(status, headers, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, headers: Mapping[str, str], length: int) -> None:
        self.asked.status = status
        self.send_response(status, HTTPStatus(status).phrase)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _pieces(content: Content, first: int, end: int, fault: Fault | None) -> Iterator[bytes]:
    size = max(1, min(PIECE, int(fault.rate / 20))) if isinstance(fault, Slow) else PIECE
    while first < end:
        block = content[first : min(end, (first // BLOCK + 1) * BLOCK)]  # a `Big` makes whole blocks
        if isinstance(fault, WrongBytes):
            block = bytes(byte ^ 0xFF for byte in block)
        for offset in range(0, len(block), size):
            yield block[offset : offset + size]
        first += len(block)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
