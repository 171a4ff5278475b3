"""A broken download ends with the verified file, or paused with a sentence; never with a listed corrupt one."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable

import pytest

from registry.downloads.queue import Downloads
from registry.library import Library
from tests.hub_faults import CutOff, Fault, Hang, LoginPage, NoRange, Redirect, Status, WrongBytes, WrongLength
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import REPOSITORY, Quick, ended, reached
from tests.registry.downloads.plain import wanted

WHERE = f"{REPOSITORY}/Tiny-Q4.gguf"
ALWAYS = 200
MEBI = 1 << 20


def outcome(downloads: Downloads, hub: HubServer, library: Library):
    """Download it to its end: → the item. What is listed is whole, whatever the end."""
    item = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf"))
    item = ended(downloads, item.id)
    listed = library.list()
    assert len(listed) == (item.state == "done")
    for model in listed:
        assert hashlib.sha256(model.path.read_bytes()).hexdigest() == hub.sha256(WHERE)
        assert (model.name, model.path.parent) == (f"{REPOSITORY}/Tiny-Q4", item.path)
    if item.state != "done":
        assert item.state == "paused"
        assert item.sentence.endswith(".")
    return item


@pytest.mark.parametrize(
    "faults",
    [
        [CutOff(MEBI), CutOff(MEBI + 5)],
        [CutOff(0)] * 3,
        [CutOff(MEBI), NoRange()],
        [CutOff(2 * MEBI), NoRange(), CutOff(0)],
        [WrongBytes()],
        [CutOff(MEBI), WrongBytes()],
        [WrongLength(100)],
        [WrongLength(-100)],
        [LoginPage()] * 2,
        [Status(429, {"Retry-After": "7"})],
        [Status(500), Status(502), Status(503), Status(504)],
        [Status(429, {"Retry-After": "7"}), CutOff(MEBI), LoginPage(), NoRange(), Status(503)],
    ],
    ids=str,
)
def test_what_passes_ends_with_the_verified_file(
    faults: list[Fault], hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    for fault in faults:
        hub.fault(WHERE, fault)
    progress: list[int] = []
    item = outcome(manager(on_change=lambda item: progress.append(item.done)), hub, library)
    assert item.state == "done"
    assert item.done == item.nbytes == progress[-1]
    assert progress == sorted(progress)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (CutOff(0), "ended after 0 of"),
        (WrongBytes(), "sha256"),
        (WrongLength(100), "bytes"),
        (WrongLength(-100), "bytes"),
        (LoginPage(), "sign in"),
        (Status(401), "access"),
        (Status(403), "access"),
        (Status(404), "no file"),
        (Status(429, {"Retry-After": "100000"}), "busy"),
        (Status(503), "busy"),
        (Redirect(""), "answered"),
    ],
    ids=str,
)
def test_what_lasts_pauses_with_a_sentence(
    fault: Fault, words: str, hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    hub.fault(WHERE, fault, times=ALWAYS)
    downloads = manager()
    item = outcome(downloads, hub, library)
    assert item.state == "paused"
    assert words in item.sentence
    assert len([asked for asked in hub.requests if asked.host == "hub"]) < 200
    hub.clear()
    downloads.resume(item.id)
    assert ended(downloads, item.id).state == "done"


@pytest.mark.parametrize("code", [401, 403, 404])
def test_what_only_a_person_can_change_is_not_tried_again(
    code: int, hub: HubServer, library: Library, manager: Callable[..., Downloads], clock: Quick
) -> None:
    hub.fault(WHERE, Status(code), times=ALWAYS)
    outcome(manager(), hub, library)
    assert len(hub.requests) == 1
    assert not clock.waits


def test_other_bytes_under_the_same_revision_are_thrown_away_after_two_tries(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    hub.replace(REPOSITORY, "Tiny-Q4.gguf", os.urandom(order.nbytes))
    downloads = manager()
    item = ended(downloads, downloads.add(order).id)
    assert item.state == "paused"
    assert "second time" in item.sentence
    assert library.list() == ()
    assert hub.fetched(WHERE) == [(0, order.nbytes)] * 2
    assert not list(library.root.rglob("*.part"))


def test_a_server_that_is_away_is_waited_for_and_then_the_item_pauses(
    hub: HubServer, library: Library, manager: Callable[..., Downloads], clock: Quick
) -> None:
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    seen = []
    downloads = manager(on_change=seen.append)
    for server in hub._servers.values():
        server.stop()
    item = ended(downloads, downloads.add(order).id)
    assert "reached" in item.sentence
    waits = [item.wait for item in seen if item.state == "waiting"]
    assert len(waits) == 8
    assert all(first < second or second > 30 for first, second in zip(waits[::2], waits[2::2], strict=False))
    assert sum(waits) > 100


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    hub.fault(WHERE, Status(429, {"Retry-After": "41"}))
    seen = []
    item = outcome(manager(on_change=seen.append), hub, library)
    assert item.state == "done"
    assert 41 <= max(item.wait for item in seen) <= 43


def test_a_read_that_hangs_does_not_keep_the_program_from_closing(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    hub.fault(WHERE, Hang(MEBI + 7))
    downloads = manager()
    id = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id
    reached(downloads, id, MEBI + 7)
    began = time.monotonic()
    downloads.close()
    assert time.monotonic() - began < 1.5
    again = manager()
    item = next(item for item in again.items())
    assert (item.id, item.state, item.sentence, item.done) == (id, "paused", "", MEBI + 7)
    again.resume(id)
    assert ended(again, id).state == "done"
    assert hub.fetched(WHERE)[-1][0] == MEBI + 7
