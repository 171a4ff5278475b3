"""The real client of the Hub feeds the queue: a GGUF model with its tower, and a checkpoint's folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cancel import Cancel
from registry.downloads.offered import wanted_of
from registry.downloads.queue import Downloads
from registry.downloads.record import Wanted
from registry.downloads.verify import verify
from registry.items import GGUF, Offer, offers
from registry.library import Library
from registry.sources.hub import Hub
from registry.sources.source import RemoteFile
from tests.engine.formats.checkpoints import write_checkpoint
from tests.hub_faults import CutOff, Hang, Status, WrongBytes
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import REPOSITORY, ended, reached
from tests.tiny import tiny


@pytest.fixture
def source(hub: HubServer) -> Hub:
    return Hub(endpoint=hub.url)


def test_a_model_from_the_hub_arrives_verified_though_the_connection_breaks(
    hub: HubServer, source: Hub, library: Library
) -> None:
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", CutOff(1 << 20))
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", WrongBytes())
    repository = source.repository(REPOSITORY, Cancel())
    (offer,) = [offer for offer in offers(repository) if offer.files[0].name == "Tiny-Q4.gguf"]
    with Downloads(library, [source], margin=0) as downloads:
        item = downloads.add(wanted_of(offer, repository.licence))
        item = ended(downloads, item.id)
    assert item.state == "done", item.sentence
    assert [model.name for model in library.list()] == [f"{REPOSITORY}/Tiny-Q4"]
    assert {path.name for path in item.path.glob("*.gguf")} == {"Tiny-Q4.gguf", "mmproj-Tiny-F16.gguf"}
    assert verify(item.path) == ()


def test_a_checkpoint_is_kept_as_a_folder_and_its_small_files_are_verified(
    hub: HubServer, source: Hub, library: Library, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path, tiny("llama", vocab_size=64), shard="60KB")
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    hub.add("labs/Gamma-1B", contents)
    hub.fault("labs/Gamma-1B/config.json", WrongBytes(), times=50)
    (offer,) = offers(source.repository("labs/Gamma-1B", Cancel()))
    order = wanted_of(offer)
    with Downloads(library, [source], margin=0) as downloads:
        item = ended(downloads, downloads.add(order).id)
        assert "git hash" in item.sentence
        assert library.list() == ()
        hub.clear()
        downloads.resume(item.id)
        item = ended(downloads, item.id)
    assert item.state == "done", item.sentence
    assert [(model.name, model.path) for model in library.list()] == [("labs/Gamma-1B/Gamma-1B", item.path)]
    assert library.resolve("Gamma-1B") == item.path
    assert verify(item.path) == ()


def test_the_hub_lets_go_of_a_read_that_hangs(hub: HubServer, source: Hub, library: Library) -> None:
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Hang(1000))
    main = next(file for file in source.repository(REPOSITORY, Cancel()).files if file.path == "Tiny-Q4.gguf")
    with Downloads(library, [source], margin=0) as downloads:
        id = downloads.add(Wanted("Tiny-Q4", (main,), main)).id
        reached(downloads, id, 1000)
        downloads.pause(id)
        downloads.resume(id)
        assert ended(downloads, id).state == "done"


def test_what_needs_a_token_says_so_until_it_is_resumed_and_after_a_restart(
    hub: HubServer, source: Hub, library: Library
) -> None:
    hub.add("labs/Closed", {"Closed-Q4.gguf": b"x" * 1000}, gated=True)
    (file,) = source.repository("labs/Closed", Cancel()).files
    with Downloads(library, [source], margin=0) as downloads:
        item = ended(downloads, downloads.add(Wanted("Closed-Q4", (file,), file)).id)
        assert (item.state, item.needs_token) == ("paused", True)
    with Downloads(library, [replace(source, token=hub.token)], margin=0) as downloads:
        (item,) = downloads.items()
        assert item.needs_token and "agreed to its conditions" in item.sentence
        downloads.resume(item.id)
        item = ended(downloads, item.id)
        assert (item.state, item.needs_token) == ("done", False)


@pytest.mark.parametrize(
    ("status", "has_token", "needed"),
    [
        (401, False, True),
        (401, True, True),
        (403, True, True),
        (404, False, True),
        (404, True, False),
        (407, True, False),
    ],
)
def test_a_token_is_asked_for_where_one_may_help(
    status: int, has_token: bool, needed: bool, hub: HubServer, source: Hub, library: Library
) -> None:
    (file,) = [each for each in source.repository(REPOSITORY, Cancel()).files if each.path == "Tiny-Q4.gguf"]
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Status(status), at="hub", times=5)
    source = replace(source, token=hub.token if has_token else None)
    with Downloads(library, [source], margin=0) as downloads:
        item = ended(downloads, downloads.add(Wanted("Tiny-Q4", (file,), file)).id)
    assert (item.state, item.needs_token) == ("paused", needed), item.sentence


def test_a_record_of_an_earlier_version_is_read(hub: HubServer, source: Hub, library: Library) -> None:
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Hang(1000))
    (file,) = [each for each in source.repository(REPOSITORY, Cancel()).files if each.path == "Tiny-Q4.gguf"]
    with Downloads(library, [source], margin=0) as downloads:
        id = downloads.add(Wanted("Tiny-Q4", (file,), file)).id
        reached(downloads, id, 1000)
    path = library.root / ".downloads" / id / "record.json"
    record = json.loads(path.read_bytes())
    for name in ("repair", "needs_token"):
        del record[name]
    path.write_text(json.dumps(record))
    with Downloads(library, [source], margin=0) as downloads:
        (item,) = downloads.items()
        assert (item.state, item.repair, item.needs_token) == ("paused", False, False)
        downloads.resume(id)
        assert ended(downloads, id).state == "done"


@pytest.mark.parametrize(
    ("path", "encoding", "name"),
    [
        ("Tiny-Q4_K_M.gguf", "Q4_K_M", "Tiny-Q4_K_M"),
        ("Q4_K_M/Tiny-Q4_K_M-00001-of-00003.gguf", "Q4_K_M", "Tiny-Q4_K_M"),
        ("Q4_K_M/model.gguf", "Q4_K_M", "model-Q4_K_M"),
        ("a/model.gguf", "a/model", "a-model"),
        ("Tiny-imatrix-Q4_0.gguf", "Tiny-imatrix-Q4_0", "Tiny-imatrix-Q4_0"),
    ],
)
def test_each_offer_of_a_repository_has_a_folder_of_its_own(path: str, encoding: str, name: str) -> None:
    file = RemoteFile("hub", "labs/x", "0" * 40, path, 1)
    wanted = wanted_of(Offer(encoding, GGUF, (file,)))
    assert wanted.steps() == ("labs", "x", name)
    assert wanted.opens == file
