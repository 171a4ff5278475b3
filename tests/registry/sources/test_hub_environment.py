"""What the environment says of the Hub: where it is, whether it is asked, by which proxy, and whom to trust."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import close_session

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError
from registry.scrub import ScrubFilter
from registry.sources import hub_environment
from registry.sources.hub import Hub
from registry.sources.source import OfflineError
from tests.hub_faults import CutOff, Hang, LoginPage, Redirect, Status, WrongLength
from tests.hub_handler import SIGNATURE
from tests.hub_server import HubServer
from tests.registry.sources.conftest import FILE, GGUF, ID, after, listed, read


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
