"""Beginnings of files that are elsewhere: what is fetched of them, and what happens where that goes wrong."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError, MillstreamError, ModelFileError, StorageError, UnsupportedModelError
from engine.formats import open_index
from engine.formats.gguf_header import read_header
from registry import headers as module
from registry.headers import Beginnings, Headers
from registry.items import Offer
from registry.sources.hub import Hub
from registry.sources.source import AccessError, OfflineError, RemoteFile
from tests.hub_faults import Big, CutOff, Fault, Hang, NoRange, Slow, Status, WrongBytes
from tests.hub_server import HubServer
from tests.registry.remote import ID, fetched, hub_server, publish
from tests.tiny_chat import write_tiny_chat

NAME = "tiny-Q8_0.gguf"
WHERE = f"{ID}/{NAME}"
STEP = 1024


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server(monkeypatch) as server:
        yield server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Its header is a small part of it."""
    (tmp_path / "files").mkdir()
    return write_tiny_chat(tmp_path / "files" / NAME, ffn=4096)


@pytest.fixture
def offer(hub: HubServer, model: Path) -> Offer:
    (found,) = publish(hub, model.parent)
    return found


@pytest.fixture
def kept(folder: Path) -> Headers:
    return Headers(folder, first=STEP)


def fetch(kept: Headers, offer: Offer, cancel: Cancel | None = None) -> Beginnings:
    return kept.fetch(Hub.from_environment(), offer.files, cancel or Cancel())


def remains(folder: Path) -> list[str]:
    """Names of the files that are kept."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_no_more_than_twice_the_header_is_fetched_and_a_second_look_costs_nothing(
    hub: HubServer, model: Path, offer: Offer, kept: Headers, folder: Path
) -> None:
    begun = fetch(kept, offer)
    header = read_header(model).nbytes
    assert header > 2 * STEP
    assert header <= fetched(hub, NAME) <= 2 * header < model.stat().st_size // 10
    (path,) = begun.paths
    assert (path.name, path.stat().st_size, begun.sizes) == (NAME, header, {path: model.stat().st_size})
    here, there = open_index(model), open_index(path, begun.sizes)
    assert there.metadata == here.metadata
    assert [(one.shape, one.encoding, one.offset, one.nbytes) for one in there.tensors.values()] == [
        (one.shape, one.encoding, one.offset, one.nbytes) for one in here.tensors.values()
    ]
    asked = len(hub.requests)
    assert fetch(kept, offer) == begun == fetch(Headers(folder), offer)
    assert len(hub.requests) == asked


def test_a_large_header_comes_in_few_requests(hub: HubServer, offer: Offer, folder: Path) -> None:
    fetch(Headers(folder), offer)
    assert len(hub.fetched(WHERE)) == 1


def vocabulary(path: Path, words: list[str], kind: int, *, more: bool = False) -> bytes:
    """A file with nothing but a header and one small tensor: → its header."""
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("general.file_type", kind)
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    if more:
        writer.add_string("quantize.imatrix.file", "imatrix.dat" * 50)
    for at in range(50 + kind):
        writer.add_tensor(f"blk.{at}.weight", np.zeros(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()[: read_header(path).nbytes]


def test_a_vocabulary_is_fetched_once_for_all_quantisations(hub: HubServer, tmp_path: Path, folder: Path) -> None:
    words = [f"a word that is long {at:08}" for at in range(60_000)]
    other = [*words[:-20_000], *(f"another word, much longer {at:06}" for at in range(20_000))]
    late = [*words[:-1], "the last word, longer than it was"]
    made = {
        "one-Q2_K.gguf": vocabulary(tmp_path / "1", words, 1),
        "one-Q4_K_M.gguf": vocabulary(tmp_path / "2", words, 2, more=True),
        "one-Q6_K.gguf": vocabulary(tmp_path / "3", words, 9),
        "other-Q8_0.gguf": vocabulary(tmp_path / "4", other, 3),
        "late-F16.gguf": vocabulary(tmp_path / "5", late, 4),
        "little-F32.gguf": vocabulary(tmp_path / "6", words[:10], 4),
    }
    hub.add(ID, {name: (tmp_path / str(at)).read_bytes() for at, name in enumerate(made, 1)})
    source = Hub.from_environment()
    files = {file.path: file for file in source.repository(ID, Cancel()).files}
    for name, header in made.items():
        # Each by a program of its own.
        (path,) = Headers(folder).fetch(source, [files[name]], Cancel()).paths
        assert path.read_bytes() == header, name
    assert fetched(hub, "one-Q2_K.gguf") >= len(made["one-Q2_K.gguf"]) > 2_000_000
    for name in ("one-Q4_K_M.gguf", "one-Q6_K.gguf"):
        assert fetched(hub, name) < 200_000
    assert fetched(hub, "other-Q8_0.gguf") >= len(made["other-Q8_0.gguf"])


def test_a_vocabulary_that_cannot_be_taken_from_another_file_is_fetched(
    hub: HubServer, tmp_path: Path, folder: Path
) -> None:
    words = [f"a word that is long {at:08}" for at in range(60_000)]
    header = vocabulary(tmp_path / "1", words, 1)
    hub.add(ID, dict.fromkeys(("one-Q2_K.gguf", "one-Q4_K_M.gguf", "one-Q6_K.gguf"), (tmp_path / "1").read_bytes()))
    source, kept = Hub.from_environment(), Headers(folder)
    one, two, three = (file for file in source.repository(ID, Cancel()).files)
    (path,) = kept.fetch(source, [one], Cancel()).paths
    hub.fault(f"{ID}/{two.path}", Slow(1e9))
    hub.fault(f"{ID}/{two.path}", CutOff(5000))
    assert kept.fetch(source, [two], Cancel()).paths[0].read_bytes() == header
    for each in path.parent.iterdir():
        each.write_bytes(b"?" * len(header))
    assert kept.fetch(source, [three], Cancel()).paths[0].read_bytes() == header


def test_another_revision_is_another_model(hub: HubServer, model: Path, offer: Offer, kept: Headers) -> None:
    one = fetch(kept, offer)
    write_tiny_chat(model, ffn=4096, layers=3)
    (other,) = publish(hub, model.parent)
    assert other.files[0].revision != offer.files[0].revision
    assert fetch(kept, other).paths != one.paths and fetch(kept, offer) == one


def test_without_a_network_what_is_kept_will_do(
    hub: HubServer, offer: Offer, kept: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = kept.repository(Hub.from_environment(), ID, Cancel())
    begun = fetch(kept, offer)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = Hub.from_environment()
    again = kept.repository(offline, ID, Cancel())
    assert (again.id, again.revision, again.files, again.licence) == (told.id, told.revision, told.files, told.licence)
    assert kept.fetch(offline, offer.files, Cancel()) == begun
    with pytest.raises(OfflineError, match="HF_HUB_OFFLINE"):
        kept.repository(offline, "org/other", Cancel())


def test_what_is_kept_and_was_damaged_is_fetched_again(hub: HubServer, offer: Offer, kept: Headers) -> None:
    (path,) = fetch(kept, offer).paths
    path.write_bytes(b"")
    assert fetch(kept, offer).paths[0].stat().st_size > STEP


@pytest.mark.parametrize("fault", [CutOff(300), CutOff(5000), NoRange(), Slow(200_000)])
def test_a_connection_that_breaks_is_gone_on_with(
    hub: HubServer, model: Path, offer: Offer, kept: Headers, fault: Fault
) -> None:
    hub.fault(WHERE, fault, times=2)
    (path,) = fetch(kept, offer).paths
    assert path.read_bytes() == model.read_bytes()[: read_header(model).nbytes]


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (CutOff(0), DownloadError, NAME),
        (CutOff(10), DownloadError, NAME),
        (Status(401), AccessError, "token"),
        (Status(503), DownloadError, ""),
        (WrongBytes(), ModelFileError, "not a GGUF file"),
    ],
)
def test_where_it_cannot_be_had_one_sentence_says_so_and_nothing_is_kept(
    hub: HubServer, offer: Offer, kept: Headers, folder: Path, fault: Fault, kind: type[MillstreamError], said: str
) -> None:
    hub.fault(WHERE, fault, times=50)
    with pytest.raises(kind) as refused:
        fetch(kept, offer)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert remains(folder) == []
    hub.clear()
    assert fetch(kept, offer).sizes


def test_a_server_that_hangs_can_be_left(hub: HubServer, offer: Offer, kept: Headers, folder: Path) -> None:
    hub.fault(WHERE, Hang(100))
    cancel = Cancel()
    threading.Timer(0.3, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        fetch(kept, offer, cancel)
    assert time.monotonic() - started < 10 and remains(folder) == []


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(*keys: bytes, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(keys)) + b"".join(keys)


LONG_TEXT = header(text(b"key") + struct.pack("<IQ", 8, 1 << 62))
LARGE_TEXT = header(text(b"key") + struct.pack("<IQ", 8, (1 << 26) + 1))
MANY_TEXTS = header(text(b"key") + struct.pack("<IIQ", 9, 8, 1 << 60))
MANY_TENSORS = header(tensors=1 << 40)
NESTED = header(text(b"key") + struct.pack("<IIQ", 9, 9, 1))
OLD = b"GGUF" + struct.pack("<IQQ", 1, 0, 0)
SAFETENSORS = struct.pack("<Q", (1 << 26) + 1) + b"{"


@pytest.mark.parametrize(
    "beginning", [b"GGUF", LONG_TEXT, LARGE_TEXT, MANY_TEXTS, MANY_TENSORS, NESTED, OLD, b"\0" * 4096]
)
def test_a_hostile_header_is_refused_after_few_bytes(hub: HubServer, folder: Path, beginning: bytes) -> None:
    data = beginning + bytes(Big(200_000)) if len(beginning) > 4 else beginning
    hub.add(ID, {NAME: data})
    files = Hub.from_environment().repository(ID, Cancel()).files
    with pytest.raises((ModelFileError, UnsupportedModelError)) as refused:
        Headers(folder, first=STEP).fetch(Hub.from_environment(), files, Cancel())
    assert NAME in str(refused.value) and "\n" not in str(refused.value) and len(str(refused.value)) < 300
    assert fetched(hub, NAME) <= STEP and remains(folder) == []


def test_a_header_that_goes_on_for_ever_is_given_up(
    hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.formats.gguf_header.MAX_HEADER", 1 << 16)
    monkeypatch.setattr(module, "MOST", (1 << 16) + 8)
    endless = header(*(text(b"key %d" % at) + struct.pack("<I", 8) + text(b"x" * 500) for at in range(4000)))
    hub.add(ID, {NAME: endless})
    files = Hub.from_environment().repository(ID, Cancel()).files
    with pytest.raises(ModelFileError, match="more than any sound header has"):
        Headers(folder, first=STEP).fetch(Hub.from_environment(), files, Cancel())
    assert fetched(hub, NAME) <= 1 << 17


def test_a_hostile_checkpoint_is_refused(hub: HubServer, folder: Path) -> None:
    hub.add(ID, {"model.safetensors": SAFETENSORS + bytes(1 << 20)})
    (file,) = Hub.from_environment().repository(ID, Cancel()).files
    kept = Headers(folder, first=STEP)
    with pytest.raises(ModelFileError, match=r"model\.safetensors is"):
        kept.fetch(Hub.from_environment(), [file], Cancel())
    large = RemoteFile("hub", ID, file.revision, "tokenizer.json", 1 << 40)
    with pytest.raises(DownloadError, match="more than such a file has"):
        kept.fetch(Hub.from_environment(), [large], Cancel())
    for path in ("../out.gguf", "/out.gguf", "a/../../out.gguf"):
        outside = RemoteFile("hub", ID, file.revision, path, 100)
        with pytest.raises(DownloadError, match="not safe"):
            kept.fetch(Hub.from_environment(), [outside], Cancel())


def test_the_models_that_were_looked_at_last_are_kept(
    hub: HubServer, model: Path, kept: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPOSITORIES", 2)
    begun = []
    for layers in (1, 2, 3):
        write_tiny_chat(model, layers=layers)
        (offer,) = publish(hub, model.parent)
        begun.append(fetch(kept, offer).paths[0])
        time.sleep(0.02)
    assert [path.exists() for path in begun] == [False, True, True]


def test_a_folder_that_cannot_be_written_is_named(hub: HubServer, offer: Offer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        fetch(Headers(tmp_path / "file"), offer)
