"""Several downloads at once: their order, their states, and what of them lasts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError, StorageError
from engine.vision.projector import all_beside
from registry.downloads.queue import Downloads
from registry.downloads.record import ItemFolder
from registry.downloads.waits import Bandwidth
from registry.library import Library
from registry.sources.source import RemoteFile
from tests import smalldisk
from tests.hub_faults import Big, CutOff, Hang, Slow
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import REPOSITORY, Quick, ended, model_bytes
from tests.registry.downloads.plain import wanted

ROOT = Path(__file__).resolve().parents[3]
MEBI = 1 << 20


def split_model(hub: HubServer, tmp_path: Path) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(tmp_path / "Split.gguf", "llama", split_max_tensors=1)
    for name in ("a", "b"):
        writer.add_tensor(name, np.ones((64, 1024), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("Split-*.gguf"))
    assert len(parts) == 2
    files = {f"Q4/{part.name}": part.read_bytes() for part in parts}
    hub.add("labs/Split", files | {"mmproj-Split-F16.gguf": model_bytes(tmp_path, 0.2, "clip", seed=3)})


def test_split_parts_and_the_tower_are_listed_together_as_one_model(
    hub: HubServer, library: Library, manager: Callable[..., Downloads], tmp_path: Path
) -> None:
    split_model(hub, tmp_path)
    parts = [f"Q4/Split-0000{number}-of-00002.gguf" for number in (1, 2)]
    order = wanted(hub, "labs/Split", "Split-Q4", *parts, "mmproj-Split-F16.gguf")
    hub.fault("labs/Split/mmproj-Split-F16.gguf", Hang(1000))
    downloads = manager()
    downloads.add(order)
    end = time.monotonic() + 10
    while downloads.items()[0].files[2].done < 1000 and time.monotonic() < end:
        time.sleep(0.002)
    assert [file.done == file.nbytes for file in downloads.items()[0].files] == [True, True, False]
    assert library.list() == ()
    downloads.pause(order.id)
    downloads.resume(order.id)
    item = ended(downloads, order.id)
    assert item.state == "done"
    (model,) = library.list()
    assert model.name == "labs/Split/Split-Q4"
    assert model.path == item.path / "Split-00001-of-00002.gguf"
    assert model.nbytes == order.nbytes
    assert library.resolve("Split-Q4") == library.resolve("labs/Split/Split-Q4") == model.path
    assert all_beside(model.path) == [item.path / "mmproj-Split-F16.gguf"]


def test_a_file_that_two_models_of_a_repository_share_is_downloaded_once(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    downloads = manager()
    for name in ("Tiny-Q4", "Tiny-Q8"):
        order = wanted(hub, REPOSITORY, name, f"{name}.gguf", "mmproj-Tiny-F16.gguf")
        assert ended(downloads, downloads.add(order).id).state == "done"
    assert len(hub.fetched(f"{REPOSITORY}/mmproj-Tiny-F16.gguf")) == 1
    models = library.list()
    assert [model.name for model in models] == [f"{REPOSITORY}/Tiny-Q4", f"{REPOSITORY}/Tiny-Q8"]
    for model in models:
        assert all_beside(model.path) == [model.path.parent / "mmproj-Tiny-F16.gguf"]


def test_files_of_one_name_from_two_repositories_do_not_meet(
    hub: HubServer, library: Library, manager: Callable[..., Downloads], tmp_path: Path
) -> None:
    hub.add("others/Tiny-GGUF", {"Tiny-Q4.gguf": model_bytes(tmp_path, 1, seed=9)})
    downloads = manager()
    for repository in (REPOSITORY, "others/Tiny-GGUF"):
        downloads.add(wanted(hub, repository, "Tiny-Q4", "Tiny-Q4.gguf"))
    assert {ended(downloads, item.id).state for item in downloads.items()} == {"done"}
    assert [model.name for model in library.list()] == [f"{REPOSITORY}/Tiny-Q4", "others/Tiny-GGUF/Tiny-Q4"]
    with pytest.raises(Exception, match="several models"):
        library.resolve("Tiny-Q4")


def test_what_is_in_the_library_is_not_downloaded_again(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    downloads = manager()
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    ended(downloads, downloads.add(order).id)
    item = ended(downloads, downloads.add(order).id)
    assert (item.state, item.done) == ("done", order.nbytes)
    assert len(hub.fetched(f"{REPOSITORY}/Tiny-Q4.gguf")) == 1


def test_a_new_revision_takes_the_place_of_the_old_one(
    hub: HubServer, library: Library, manager: Callable[..., Downloads], tmp_path: Path
) -> None:
    downloads = manager()
    ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id)
    new = model_bytes(tmp_path, 3, seed=77)
    hub.add(REPOSITORY, {"Tiny-Q4.gguf": new})
    item = ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id)
    assert item.state == "done"
    assert [model.path.read_bytes() for model in library.list()] == [new]


def test_no_more_than_two_at_once_and_in_their_order(hub: HubServer, manager: Callable[..., Downloads]) -> None:
    names = [f"m{number}" for number in range(5)]
    hub.add("labs/Many", {f"{name}.gguf": Big(3 * MEBI, seed=at) for at, name in enumerate(names)})
    for name in names:
        hub.fault(f"labs/Many/{name}.gguf", Slow(30 * MEBI))
    begun: list[str] = []
    most = 0
    lock = threading.Lock()
    running: set[str] = set()

    def change(item) -> None:
        nonlocal most
        with lock:
            if item.state == "downloading":
                running.add(item.name)
                if item.name not in begun:
                    begun.append(item.name)
            else:
                running.discard(item.name)
            most = max(most, len(running))

    downloads = manager(on_change=change)
    for name in names:
        downloads.add(wanted(hub, "labs/Many", name, f"{name}.gguf"))
    assert {ended(downloads, item.id).state for item in downloads.items()} == {"done"}
    assert most == 2
    assert set(begun[:2]) == set(names[:2])
    assert set(begun) == set(names)


def test_one_that_waits_for_its_source_lets_others_pass(hub: HubServer, manager: Callable[..., Downloads]) -> None:
    from registry.downloads.waits import Time

    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", CutOff(0))
    downloads = manager(at_once=1, clock=Time())
    first = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id
    second = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q8", "Tiny-Q8.gguf")).id
    assert ended(downloads, second).state == "done"
    waiting = ended(downloads, first, "waiting")
    assert 0 < waiting.wait <= 1
    downloads.resume(first)
    assert ended(downloads, first).state == "done"


def test_a_paused_one_goes_on_where_it_was_after_a_restart(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    where = f"{REPOSITORY}/Tiny-Q4.gguf"
    hub.fault(where, Hang(MEBI + 100))
    first = manager()
    id = first.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id
    end = time.monotonic() + 10
    while first.items()[0].done < MEBI + 100 and time.monotonic() < end:
        time.sleep(0.002)
    first.pause(id)
    first.close()
    second = manager(go_on=True)
    (item,) = second.items()
    assert (item.state, item.done, item.name) == ("paused", MEBI + 100, "Tiny-Q4")
    second.resume(id)
    assert ended(second, id).state == "done"
    assert [first for first, _ in hub.fetched(where)] == [0, MEBI + 100]


def test_a_removed_one_leaves_nothing(hub: HubServer, library: Library, manager: Callable[..., Downloads]) -> None:
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Hang(MEBI))
    seen = []
    downloads = manager(on_change=seen.append)
    id = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id
    ended(downloads, id, "downloading")
    downloads.remove(id)
    assert downloads.items() == ()
    assert seen[-1].state == "removed"
    assert list((library.root / ".downloads").iterdir()) == []


def test_two_programs_do_not_download_the_same_item(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    where = f"{REPOSITORY}/Tiny-Q4.gguf"
    hub.fault(where, Hang(MEBI))
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    one, other = manager(), manager()
    one.add(order)
    ended(one, order.id, "downloading")
    assert other.add(order).state == "elsewhere"
    with pytest.raises(StorageError, match="downloaded"):
        other.remove(order.id)
    assert manager().items()[0].state == "elsewhere"
    one.close()
    assert other.items()[0].state == "paused"
    other.resume(order.id)
    assert ended(other, order.id).state == "done"


def test_too_little_room_pauses_before_a_byte_is_fetched(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    downloads = manager(margin=1 << 60)
    item = ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id)
    assert item.state == "paused"
    assert "too little room" in item.sentence
    assert hub.requests == []


DISK = """
import sys, threading
from pathlib import Path
from registry.downloads.queue import Downloads
from registry.library import Library
from tests.registry.downloads.conftest import ended
from tests.registry.downloads.plain import PlainSource
place, url, mode = sys.argv[1:]
downloads = Downloads(Library(Path(place)), [PlainSource(url)], margin=0 if mode == "checked" else -1 << 40)
(item,) = downloads.items()
downloads.resume(item.id)
item = ended(downloads, item.id)
print(item.state, item.done, item.sentence)
Path("filler").unlink(missing_ok=True)
downloads.resume(item.id)
print(ended(downloads, item.id).state, len(Library(Path(place)).list()))
downloads.close()
"""


@smalldisk.needed
@pytest.mark.parametrize(("mode", "words"), [("checked", "too little room"), ("unchecked", "full")])
def test_a_full_disk_pauses_and_goes_on_once_there_is_room(
    mode: str, words: str, hub: HubServer, library: Library, manager: Callable[..., Downloads], tmp_path: Path
) -> None:
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", CutOff(1000), times=0)
    made = manager(margin=1 << 60)
    ended(made, made.add(order).id)
    made.close()
    place = tmp_path / "small é"
    place.mkdir()
    prepare = f'cp -r "{library.root}/.downloads" . && head -c 2097152 /dev/zero > filler'
    command = [sys.executable, "-c", DISK, ".", hub.url, mode]
    done = smalldisk.run(command, place, "4m", prepare, {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    paused, after = done.stdout.splitlines()
    state, nbytes, sentence = paused.split(" ", 2)
    assert (state, words in sentence) == ("paused", True)
    assert (int(nbytes) > 0) == (mode == "unchecked")
    assert after == "done 1"


@pytest.mark.parametrize(
    "path", ["../x.gguf", "/etc/x.gguf", "a/../x.gguf", "C:\\x.gguf", "a\\b.gguf", ".hidden.gguf", "con.gguf", "x.part"]
)
def test_a_name_that_leads_out_is_refused_before_anything_is_written(
    path: str, library: Library, manager: Callable[..., Downloads]
) -> None:
    from registry.downloads.record import Wanted

    file = RemoteFile("plain", "labs/x", "main", path, 10, "0" * 64)
    with pytest.raises(DownloadError, match=r"not safe|cannot keep"):
        manager().add(Wanted("x", (file,), file))
    for repository in ("..", "a/../b", "/a", "a//b"):
        file = RemoteFile("plain", repository, "main", "x.gguf", 10, "0" * 64)
        with pytest.raises(DownloadError, match=r"not safe|cannot keep"):
            manager().add(Wanted("x", (file,), file))
    assert not library.root.exists()


def test_a_link_that_leads_out_of_the_library_is_not_followed(
    hub: HubServer, library: Library, manager: Callable[..., Downloads], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    library.root.mkdir()
    (library.root / "labs").symlink_to(outside)
    downloads = manager()
    item = ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id)
    assert item.state == "paused"
    assert "link" in item.sentence
    assert list(outside.iterdir()) == []


def test_a_damaged_record_is_seen_and_can_be_removed(library: Library, manager: Callable[..., Downloads]) -> None:
    folder = ItemFolder(library.root, "0123456789abcdef")
    folder.path.mkdir(parents=True)
    (folder.path / "record.json").write_text('{"name": 1}')
    downloads = manager(go_on=True)
    (item,) = downloads.items()
    assert (item.state, item.wanted, item.nbytes) == ("paused", None, 0)
    assert "damaged" in item.sentence
    downloads.resume(item.id)
    assert downloads.items()[0].state == "paused"
    downloads.remove(item.id)
    assert not folder.path.exists()


def test_the_limit_holds_for_all_together_by_the_clock() -> None:
    clock = Quick()
    bandwidth = Bandwidth(1000, clock)
    for _ in range(50):
        bandwidth.take(700, Cancel())
    assert clock.seconds == pytest.approx(35.0)
    bandwidth.set(None)
    bandwidth.take(10**9, Cancel())
    assert clock.seconds == pytest.approx(35.0)


def test_a_wait_for_bandwidth_is_broken_off_at_once() -> None:
    from registry.downloads.waits import Time

    cancel = Cancel()
    bandwidth = Bandwidth(1, Time())
    threading.Timer(0.05, cancel.set).start()
    with pytest.raises(Cancelled):
        bandwidth.take(10**9, cancel)


def test_the_rate_that_is_set_slows_the_downloads_of_the_queue(
    hub: HubServer, manager: Callable[..., Downloads], clock: Quick
) -> None:
    downloads = manager(rate=MEBI)
    for name in ("Tiny-Q4", "Tiny-Q8"):
        downloads.add(wanted(hub, REPOSITORY, name, f"{name}.gguf"))
    assert {ended(downloads, item.id).state for item in downloads.items()} == {"done"}
    assert clock.seconds >= 4.9
