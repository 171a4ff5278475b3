"""What the Hub or the network does wrong: each is told in a sentence, and every wait can be cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError
from registry.sources.hub import Hub
from registry.sources.source import AccessError, BusyError, GoneError, OfflineError, RemoteFile
from tests.hub_faults import CutOff, Fault, Hang, LoginPage, Redirect, Slow, Status, WrongBytes, WrongLength
from tests.hub_server import HubServer
from tests.registry.sources.conftest import CONFIG, FILE, GGUF, ID, after, git_sha1, listed, read


@pytest.mark.parametrize(
    ("fault", "at", "kind", "sentence"),
    [
        (Status(429, {"Retry-After": "7"}), "hub", BusyError, "asks to wait"),
        (Status(429, {"RateLimit": '"api";r=0;t=55'}), "cdn", BusyError, "asks to wait"),
        (Status(503), "hub", BusyError, "cannot answer just now"),
        (Status(502), "cdn", BusyError, "cannot answer just now"),
        (Status(403), "cdn", BusyError, "address that the Hub gave"),
        (Status(403), "hub", AccessError, "refuses"),
        (Status(404, {"X-Error-Code": "EntryNotFound"}), "hub", GoneError, "does not exist on the Hub"),
        (Status(404, {"X-Error-Code": "RevisionNotFound"}), "hub", GoneError, "no such version"),
        (Status(418), "hub", DownloadError, "status 418"),
        (LoginPage(), "hub", OfflineError, "page of its own"),
        (LoginPage(), "cdn", OfflineError, "page of its own"),
        (Redirect(), "hub", DownloadError, "in circles"),
        (Redirect("file:///etc/passwd"), "hub", DownloadError, "no web address"),
        (Redirect("javascript:alert(1)"), "hub", DownloadError, "no web address"),
        (Redirect("http://127.0.0.1:1/x"), "hub", OfflineError, "127.0.0.1 cannot be reached"),
        (Redirect("/../../../etc/passwd"), "hub", GoneError, "There is no"),
        (WrongLength(+100), "", DownloadError, "sends 5220 bytes"),
        (WrongLength(-100), "", DownloadError, "sends 5020 bytes"),
    ],
)
def test_a_fault_is_told_in_one_sentence_of_the_right_kind(
    hub: HubServer, source: Hub, fault: Fault, at: str, kind: type[DownloadError], sentence: str
) -> None:
    file = listed(source)
    hub.fault(FILE, fault, at=at)
    with pytest.raises(DownloadError, match=sentence) as caught:
        read(source, file)
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert read(source, file) == GGUF, "the next request is not spoiled by it"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 55.0),
        ({"RateLimit": '"api";r=3;t=55'}, None),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "9" * 30}, 86400.0),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_the_one_that_the_hub_gives(
    hub: HubServer, source: Hub, headers: dict[str, str], seconds: float | None
) -> None:
    hub.fault("/api/models", Status(429, headers))
    begin = time.monotonic()
    with pytest.raises(BusyError) as caught:
        source.search("tiny", 5, Cancel())
    assert caught.value.seconds == seconds
    assert time.monotonic() - begin < 1, "waiting is left to the queue"


def test_a_file_that_was_replaced_is_noticed_before_its_bytes_are_read(hub: HubServer, source: Hub) -> None:
    weights, config = listed(source), listed(source, "config.json")
    hub.replace(ID, "tiny-Q4_K_M.gguf", bytes(len(GGUF)))
    hub.replace(ID, "config.json", CONFIG[::-1])
    for file in (weights, config):
        with pytest.raises(GoneError, match="changed on the Hub"):
            read(source, file)
    assert read(source, listed(source)) == bytes(len(GGUF))


def test_a_connection_cut_off_gives_what_came_and_then_raises(hub: HubServer, source: Hub) -> None:
    hub.fault(FILE, CutOff(1234))
    got = bytearray()
    with source.open(listed(source), 0, Cancel()) as opened, pytest.raises(OfflineError, match="broke"):
        for chunk in opened.chunks:
            got += chunk
    assert got == GGUF[:1234]
    assert read(source, listed(source), 1234) == GGUF[1234:]


def test_a_small_file_may_be_cut_off_or_spoiled_too(hub: HubServer, source: Hub) -> None:
    file = listed(source, "config.json")
    hub.fault(f"{ID}/config.json", CutOff(3))
    with pytest.raises(OfflineError, match=r"config\.json .*read"):
        read(source, file)
    hub.fault(f"{ID}/config.json", WrongBytes())
    assert git_sha1(read(source, file)) != file.git_sha1
    assert git_sha1(read(source, file)) == file.git_sha1


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"id": 3}', b"null", b"{", b"[" * 100_000, b'{"id":"a/b","sha":"x"}'])
def test_an_answer_of_another_shape_is_told(hub: HubServer, source: Hub, body: bytes) -> None:
    hub.fault(f"/api/models/{ID}", Status(200, {"Content-Type": "application/json"}, body))
    with pytest.raises(DownloadError, match="not understood"):
        source.repository(ID, Cancel())


def test_what_a_search_answers_wrongly_is_left_out(hub: HubServer, source: Hub) -> None:
    body = b'[{"id": "../../etc"}, {"id": "good/one", "tags": [3], "downloads": "x", "gguf": 4}, {"id": 7}]'
    hub.fault("/api/models", Status(200, {"Content-Type": "application/json"}, body))
    assert [each.id for each in source.search("one", 5, Cancel())] == ["good/one"]


def test_a_search_whose_pages_never_end_ends(hub: HubServer, source: Hub) -> None:
    headers = {"Content-Type": "application/json", "Link": '<https://elsewhere.invalid/x?cursor=1>; rel="next"'}
    hub.fault("/api/models", Status(200, headers, b'[{"id": "not a name"}]'), times=1000)
    assert source.search("tiny", 5, Cancel()) == ()
    assert 1 < len(hub.requests) <= 100 and hub.requests[-1].query == "cursor=1"


def test_a_login_page_instead_of_the_api_is_told(hub: HubServer, source: Hub) -> None:
    hub.fault("/api/models", LoginPage())
    with pytest.raises(OfflineError, match="sign in"):
        source.search("tiny", 5, Cancel())


def test_a_hub_that_is_not_there_is_told_at_once(source: Hub) -> None:
    begin = time.monotonic()
    for call in (lambda hub: hub.search("x", 1, Cancel()), lambda hub: hub.repository(ID, Cancel())):
        with pytest.raises(OfflineError, match="cannot be reached"):
            call(replace(source, endpoint="http://127.0.0.1:1"))
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize(
    ("where", "at", "call"),
    [
        ("/api/models", "hub", lambda source, file, cancel: source.search("tiny", 5, cancel)),
        (f"/api/models/{ID}", "hub", lambda source, file, cancel: source.repository(ID, cancel)),
        (FILE, "hub", lambda source, file, cancel: read(source, file, cancel=cancel)),
        (FILE, "cdn", lambda source, file, cancel: read(source, file, cancel=cancel)),
    ],
)
def test_cancel_ends_the_wait_for_an_answer(
    hub: HubServer, source: Hub, where: str, at: str, call: Callable[[Hub, RemoteFile, Cancel], object]
) -> None:
    file, cancel = listed(source), Cancel()
    hub.fault(where, Hang(), at=at)
    timer, begin = after(0.1, cancel), time.monotonic()
    with pytest.raises(Cancelled):
        call(source, file, cancel)
    assert 0.05 < time.monotonic() - begin < 1
    timer.join()


@pytest.mark.parametrize("fault", [Hang(after=100), Slow(rate=200)])
def test_cancel_ends_the_wait_for_bytes(hub: HubServer, source: Hub, fault: Fault) -> None:
    file, cancel = listed(source), Cancel()
    hub.fault(FILE, fault)
    with source.open(file, 0, cancel) as opened:
        assert GGUF.startswith(next(opened.chunks))
        timer, begin = after(0.1, cancel), time.monotonic()
        with pytest.raises(Cancelled):
            for _ in opened.chunks:
                pass
    assert time.monotonic() - begin < 1
    timer.join()
    assert read(source, file) == GGUF, "the next reader has a connection of its own"


def test_one_that_is_cancelled_already_asks_nothing(hub: HubServer, source: Hub) -> None:
    file, cancel = listed(source), Cancel()
    asked = len(hub.requests)
    cancel.set()
    for call in (lambda: source.search("x", 1, cancel), lambda: read(source, file, cancel=cancel)):
        with pytest.raises(Cancelled):
            call()
    assert len(hub.requests) == asked
