"""Asks the Hub by the session of `huggingface_hub`, and reads answers so that a `Cancel` ends every wait at once.

The session honours HTTP_PROXY, HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE, and always verifies certificates. Redirects are
followed here, step by step: the access token stays with the Hub's own origin, an encrypted connection stays encrypted,
and only web addresses are gone to.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx2
from huggingface_hub import get_session

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError
from registry.sources.hub_errors import Asking, of_answer, of_exception

CONNECT_SECONDS: Final = 15.0
READ_SECONDS: Final = 30.0
MAX_REDIRECTS: Final = 10
MAX_SMALL: Final = 1 << 16
"""Bytes of an answer's body that are read only so that the connection can be used again."""


Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer:
    """An answer of status 2xx whose body waits to be read.

    `etag` is what the Hub itself says of the file's contents: sha256, or git's sha1 of a small file; "" where it says
    nothing. `headers` are of the last answer.
    """

    status: int
    headers: httpx2.Headers
    etag: str
    chunks: Iterator[bytes]
    links: Mapping[str, Mapping[str, str]]


@contextmanager
def answer(
    url: str,
    asking: Asking,
    cancel: Cancel,
    *,
    headers: Mapping[str, str],
    params: Mapping[str, str | list[str]] | None = None,
) -> Iterator[Answer]:
    """What the Hub answers. Raises `DownloadError` and its kinds, and `Cancelled` once `cancel` is set; `chunks`, too.

    The connection is let go of at the end of the `with`.
    """
    response, etag = _promptly(
        lambda: _followed(url, asking, cancel, headers, params), lambda late: late[0].close(), cancel
    )
    breaker = _Breaker(response)
    try:
        with cancel.on_set(breaker):
            chunks = _chunks(response, asking, cancel)
            yield Answer(response.status_code, response.headers, etag, chunks, _links(response))
    finally:
        breaker.forget()
        response.close()


def _followed(
    url: str,
    asking: Asking,
    cancel: Cancel,
    headers: Mapping[str, str],
    params: Mapping[str, str | list[str]] | None,
) -> tuple[httpx2.Response, str]:
    """The answer at the end of all redirects, and what the Hub said of the file's contents on the way."""
    host, etag = "the Hub", ""
    problem: Exception
    try:
        session = get_session()
        timeout = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        request = session.build_request("GET", url, params=params, headers=dict(headers), timeout=timeout)
        home = request.url.origin
        for _ in range(MAX_REDIRECTS + 1):
            cancel.check()
            host = request.url.host
            response = session.send(request, stream=True, auth=None, follow_redirects=False)
            try:
                from_hub = request.url.origin == home
                if from_hub:
                    etag = _etag(response) or etag
                if response.status_code >= 400:
                    raise of_answer(response.status_code, response.headers, asking, from_hub)
                if not response.has_redirect_location:
                    return response, etag
                request = _next(request, response, asking)
                if int(response.headers.get("Content-Length", MAX_SMALL + 1)) <= MAX_SMALL:
                    response.read()
            except BaseException:
                response.close()
                raise
            response.close()
        raise DownloadError(f"The Hub sends requests for {asking.what} round in circles. Try again later.")
    except (DownloadError, Cancelled):
        raise
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError) as error:
        problem = of_exception(error, asking, host)
    raise problem  # outside, so that no traceback shows the client's own text, which holds whole addresses


def _next(request: httpx2.Request, response: httpx2.Response, asking: Asking) -> httpx2.Request:
    """The request that a redirect leads to, which has the token only where it stays with the same origin."""
    following = response.next_request
    before = request.url.scheme
    if following is None or following.url.scheme not in ("http", "https") or not following.url.host:
        raise DownloadError(f"The Hub sends requests for {asking.what} to what is no web address. Nothing was fetched.")
    if before == "https" and following.url.scheme != "https":
        raise DownloadError(
            f"The Hub sends requests for {asking.what} to an address that is not encrypted. Nothing was fetched."
        )
    if following.url.origin != request.url.origin:
        following.headers.pop("Authorization", None)
    return following


def _etag(response: httpx2.Response) -> str:
    """As the Hub gives it: of the file that it redirects to, before that of its own answer."""
    found = response.headers.get("X-Linked-Etag") or response.headers.get("ETag") or ""
    return str(found).removeprefix("W/").strip('"').lower()


def _links(response: httpx2.Response) -> Mapping[str, Mapping[str, str]]:
    with contextlib.suppress(ValueError, KeyError):
        return {name: dict(link) for name, link in response.links.items() if name is not None}
    return {}


def _chunks(response: httpx2.Response, asking: Asking, cancel: Cancel) -> Iterator[bytes]:
    """The bytes as they come. One that ends early raises only where the server had promised a length."""
    problem: Exception | None = None
    try:
        for chunk in response.iter_raw():
            cancel.check()
            yield chunk
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        problem = of_exception(error, asking, response.request.url.host)
    cancel.check()
    if problem is not None:
        raise problem


class _Breaker:
    """Called by another thread, it wakes the one that waits for bytes of this response; after `forget` it does nothing,
    since the connection may serve another request by then."""

    def __init__(self, response: httpx2.Response) -> None:
        stream: Any = response.extensions.get("network_stream")
        self._socket: socket.socket | None = stream.get_extra_info("socket") if stream is not None else None
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Closing would not wake a thread that waits; nor may TLS be ended politely under its feet.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def forget(self) -> None:
        with self._lock:
            self._socket = None


def _promptly(call: Callable[[], Result], discard: Callable[[Result], None], cancel: Cancel) -> Result:
    """What `call` returns or raises, run by a thread of its own, which nobody waits for any more once `cancel` is set.

    Looking up a host, connecting, and waiting for an answer cannot be broken off otherwise; they end by themselves
    after the seconds given above. What comes too late is discarded.
    """
    cancel.check()
    future: Future[Result] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def throw_away(late: Future[Result]) -> None:
        if late.exception() is None:
            discard(late.result())

    threading.Thread(target=work, name="ask the Hub", daemon=True).start()
    future.add_done_callback(lambda _: over.set())
    try:
        with cancel.on_set(over.set):
            over.wait()
        cancel.check()
    except BaseException:
        future.add_done_callback(throw_away)
        raise
    return future.result()
