"""The Hub as a source, by the real client against a real server."""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import close_session

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError
from registry.scrub import ScrubFilter
from registry.sources import hub_environment
from registry.sources.hub import Hub
from registry.sources.source import AccessError, BusyError, GoneError, OfflineError, RemoteFile, Source
from tests.hub_faults import (
    Big,
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
)
from tests.hub_handler import SIGNATURE
from tests.hub_server import HubServer

GGUF = bytes(range(256)) * 20
CONFIG = b'{"model_type": "llama"}'
ID = "org/tiny"
FILE = f"{ID}/tiny-Q4_K_M.gguf"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        server.use(monkeypatch)
        close_session()  # its connections and its proxies are those of the test before
        server.add(
            ID,
            {"tiny-Q4_K_M.gguf": GGUF, "config.json": CONFIG, "a folder/é 山.gguf": GGUF[:999]},
            downloads=7,
            likes=3,
        )
        yield server
        close_session()


@pytest.fixture
def source(hub: HubServer) -> Hub:
    return Hub.from_environment()


def listed(source: Hub, path: str = "tiny-Q4_K_M.gguf", id: str = ID) -> RemoteFile:
    return next(file for file in source.repository(id, Cancel()).files if file.path == path)


def read(source: Hub, file: RemoteFile, first: int = 0, last: int | None = None, cancel: Cancel | None = None) -> bytes:
    with source.open(file, first, cancel or Cancel(), last) as opened:
        assert opened.first in (0, first) and opened.total == file.nbytes
        return b"".join(opened.chunks)


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


# What it lists.


def test_a_repository_has_its_files_with_sizes_hashes_and_the_commit(hub: HubServer, source: Source) -> None:
    found = source.repository(ID, Cancel())
    assert (found.id, found.revision, found.source) == (ID, hub.commit(ID), "hub")
    assert (found.licence, found.family, found.gated) == ("apache-2.0", "llama", False)
    assert (found.downloads, found.likes, found.updated) == (7, 3, "2026-05-31")
    files = {file.path: file for file in found.files}
    assert set(files) == {"tiny-Q4_K_M.gguf", "config.json", "a folder/é 山.gguf"}
    weights, config = files["tiny-Q4_K_M.gguf"], files["config.json"]
    assert (weights.nbytes, weights.sha256, weights.git_sha1) == (len(GGUF), hashlib.sha256(GGUF).hexdigest(), "")
    assert (config.nbytes, config.sha256, config.git_sha1) == (len(CONFIG), "", git_sha1(CONFIG))
    assert all(file.revision == hub.commit(ID) for file in found.files)


def test_a_repository_is_found_at_a_named_revision_only(hub: HubServer, source: Hub) -> None:
    assert source.repository(ID, Cancel(), "main").revision == hub.commit(ID)
    with pytest.raises(GoneError, match="no such version"):
        source.repository(ID, Cancel(), "older/one")


def test_a_search_gives_the_most_downloaded_first_over_several_pages(hub: HubServer, source: Hub) -> None:
    for number in range(7):
        hub.add(f"maker/tiny-{number}", {"a.gguf": b"x"}, downloads=100 + number)
    hub.add("maker/tiny-without", {"model.safetensors": b"x"}, tags=(), downloads=1000)
    hub.page = 3
    found = source.search("tiny", 6, Cancel())
    assert [each.id for each in found] == [f"maker/tiny-{number}" for number in (6, 5, 4, 3, 2, 1)]
    assert found[0].downloads == 106 and found[0].family == "llama" and found[0].licence == "apache-2.0"
    assert found[0].files == ()
    assert [each.id for each in source.search("TINY org", 5, Cancel())] == [ID]
    assert source.search("nothing like it", 5, Cancel()) == ()


@pytest.mark.parametrize("id", ["tiny", "../etc", "a/b/c", "a/..", "a b/c", "datasets/a/b", ""])
def test_a_name_that_is_none_is_never_asked_for(hub: HubServer, source: Hub, id: str) -> None:
    with pytest.raises(DownloadError, match="not the name of a repository"):
        source.repository(id, Cancel())
    assert hub.requests == []


# Bytes.


def test_bytes_are_those_of_the_file_whole_and_in_parts(hub: HubServer, source: Hub) -> None:
    file = listed(source)
    assert read(source, file) == GGUF
    assert read(source, file, 1000) == GGUF[1000:]
    assert read(source, file, 10, 19) == GGUF[10:20]
    assert read(source, file, 0, 0) == GGUF[:1]
    assert read(source, file, 5000, 10**9) == GGUF[5000:]
    assert hub.fetched(FILE) == [(0, 5120), (1000, 5120), (10, 20), (0, 1), (5000, 5120)]
    assert read(source, listed(source, "config.json")) == CONFIG
    assert read(source, listed(source, "a folder/é 山.gguf"), 9) == GGUF[9:999]


def test_nothing_is_asked_for_beyond_the_end(hub: HubServer, source: Hub) -> None:
    file = listed(source)
    asked = len(hub.requests)
    assert read(source, file, len(GGUF)) == b"" and len(hub.requests) == asked


def test_a_server_without_ranges_begins_anew_and_says_so(hub: HubServer, source: Hub) -> None:
    hub.fault(FILE, NoRange())
    with source.open(listed(source), 1000, Cancel()) as opened:
        assert opened.first == 0 and b"".join(opened.chunks) == GGUF


def test_no_more_than_was_asked_for_is_given(hub: HubServer, source: Hub) -> None:
    hub.fault(FILE, NoRange())
    with source.open(listed(source), 10, Cancel(), 19) as opened:
        assert opened.first == 0 and b"".join(opened.chunks) == GGUF[:20]


def test_a_large_file_comes_in_pieces(hub: HubServer, source: Hub) -> None:
    big = Big(5 << 20, seed=3)
    hub.add("org/big", {"big.gguf": big})
    file = listed(source, "big.gguf", "org/big")
    digest, longest = hashlib.sha256(), 0
    with source.open(file, 0, Cancel()) as opened:
        for chunk in opened.chunks:
            digest.update(chunk)
            longest = max(longest, len(chunk))
    assert digest.hexdigest() == file.sha256 and longest <= 1 << 20


# Who gets the token.


def test_the_token_goes_to_the_hub_alone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    source = Hub.from_environment()
    hub.add("org/closed", {"m.gguf": GGUF, "config.json": CONFIG}, gated=True)
    assert source.repository("org/closed", Cancel()).gated
    assert read(source, listed(source, "m.gguf", "org/closed")) == GGUF
    assert read(source, listed(source, "config.json", "org/closed")) == CONFIG
    asked = {host: [each for each in hub.requests if each.host == host] for host in ("hub", "cdn")}
    assert all(each.headers["authorization"] == f"Bearer {hub.token}" for each in asked["hub"])
    assert asked["cdn"] and not any("authorization" in each.headers for each in asked["cdn"])
    assert not any(hub.token in str(each.headers) for each in asked["cdn"])


def test_without_a_token_a_gated_repository_is_listed_and_its_files_are_refused(hub: HubServer, source: Hub) -> None:
    hub.add("org/closed", {"m.gguf": GGUF}, gated=True)
    file = listed(source, "m.gguf", "org/closed")
    with pytest.raises(AccessError, match=r"agreed to its conditions.*/org/closed .*enter an access token"):
        read(source, file)
    assert not any("authorization" in each.headers for each in hub.requests)


def test_a_private_repository_is_seen_with_a_token_only(hub: HubServer, source: Hub) -> None:
    hub.add("org/own", {"m.gguf": GGUF}, private=True)
    with pytest.raises(GoneError, match="enter an access token"):
        source.repository("org/own", Cancel())
    assert source.search("own", 5, Cancel()) == ()
    with_token = replace(source, token=hub.token)
    assert with_token.repository("org/own", Cancel()).files
    assert [each.id for each in with_token.search("own", 5, Cancel())] == ["org/own"]


def test_a_wrong_token_is_told_and_not_repeated(hub: HubServer, source: Hub) -> None:
    wrong = replace(source, token="hf_wrongwrongwrong")
    with pytest.raises(AccessError, match="does not accept the access token") as caught:
        wrong.repository(ID, Cancel())
    assert "wrongwrong" not in f"{caught.value!r}{wrong!r}"


# What goes wrong.


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


# Cancelling.


def after(seconds: float, cancel: Cancel) -> threading.Timer:
    timer = threading.Timer(seconds, cancel.set)
    timer.start()
    return timer


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


# The environment.


def test_offline_means_that_nothing_is_asked(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    file = listed(Hub.from_environment())
    asked = len(hub.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = Hub.from_environment()
    for call in (lambda: source.search("x", 1, Cancel()), lambda: read(source, file)):
        with pytest.raises(OfflineError, match="HF_HUB_OFFLINE is set"):
            call()
    assert len(hub.requests) == asked


@pytest.mark.parametrize("address", ["file:///etc", "hub.example", "https://", "http://[", "https://a:b:c", "ftp://a"])
def test_an_endpoint_that_is_no_web_address_is_told(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(DownloadError, match="HF_ENDPOINT is not a web address"):
        Hub.from_environment()


def test_the_folders_of_the_hub_s_own_tools_are_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    assert hub_environment.cache() == folder / "cache" / "huggingface" / "hub"
    monkeypatch.setenv("HF_HOME", str(folder / "own"))
    assert (hub_environment.cache(), hub_environment.token_file()) == (folder / "own/hub", folder / "own/token")
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "big disk"))
    assert hub_environment.cache() == folder / "big disk"


def test_a_proxy_is_used_except_for_hosts_that_need_none(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    source = replace(Hub.from_environment(), endpoint="http://hub.invalid")
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, hub.url)
    close_session()
    assert [each.id for each in source.search("tiny", 5, Cancel())] == [ID]
    assert hub.requests[-1].headers["host"] == "hub.invalid"
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,hub.invalid")
    close_session()
    with pytest.raises(OfflineError, match=r"hub\.invalid cannot be reached"):
        source.search("tiny", 5, Cancel())


def test_secrets_reach_neither_logs_nor_errors(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    source = Hub.from_environment()
    caplog.handler.addFilter(ScrubFilter())
    caplog.set_level(logging.DEBUG)
    file = listed(source)
    said = repr(source)
    for fault in (CutOff(10), Status(403), WrongLength(5), LoginPage()):
        hub.fault(FILE, fault, at="cdn")
        try:
            read(source, file)
        except DownloadError as error:
            logging.getLogger("test").exception("It failed.")
            said += f"{error!r}"
    assert "It failed." in caplog.text and "HTTP Request" in caplog.text
    for secret in (hub.token, SIGNATURE):
        assert secret not in said + caplog.text


# TLS.


@pytest.fixture
def certificate(folder: Path) -> Path:
    """One for this machine, which nobody vouches for."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    path = folder / "certificate.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    done = subprocess.run(
        [openssl, "req", "-x509", *kind, *names, "-keyout", str(path), "-out", str(folder / "public.pem")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    path.write_text(path.read_text() + (folder / "public.pem").read_text())
    return path


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubServer(certificate=certificate) as server:
        server.use(monkeypatch)
        close_session()
        server.add(ID, {"tiny-Q4_K_M.gguf": GGUF})
        source = replace(Hub.from_environment(), token=server.token)
        with pytest.raises(DownloadError, match=r"certificate could not be verified.*SSL_CERT_FILE"):
            source.repository(ID, Cancel())
        assert server.requests == []
        close_session()


def test_a_network_s_own_certificate_is_taken_by_name_and_waits_over_tls_end_too(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HubServer(certificate=certificate) as server:
        server.use(monkeypatch)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("public.pem")))
        close_session()
        server.add(ID, {"tiny-Q4_K_M.gguf": GGUF})
        source = Hub.from_environment()
        file, cancel = listed(source), Cancel()
        assert read(source, file) == GGUF
        server.fault(FILE, Redirect("http://127.0.0.1:1/x"))
        with pytest.raises(DownloadError, match="not encrypted"):
            read(source, file)
        server.fault(FILE, Hang(after=100))
        with source.open(file, 0, cancel) as opened:
            assert next(opened.chunks) == GGUF[:100]
            timer, begin = after(0.1, cancel), time.monotonic()
            with pytest.raises(Cancelled):
                next(opened.chunks)
        assert time.monotonic() - begin < 1
        timer.join()
        close_session()
