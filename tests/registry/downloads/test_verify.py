"""A model that is damaged later is found, not offered, and made whole again by its damaged files alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import ModelFileError, StorageError
from registry.downloads.queue import Downloads
from registry.downloads.verify import verify
from registry.library import Library
from registry.progress import Progress
from registry.provenance import read_provenance
from tests.hub_faults import Hang
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import REPOSITORY, ended, reached
from tests.registry.downloads.plain import wanted

MMPROJ = "mmproj-Tiny-F16.gguf"


@pytest.fixture
def downloads(manager: Callable[..., Downloads]) -> Downloads:
    return manager()


@pytest.fixture
def model(hub: HubServer, downloads: Downloads) -> Path:
    """The folder of a whole model of two files."""
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf", MMPROJ)
    path = ended(downloads, downloads.add(order).id).path
    assert path is not None
    hub.requests.clear()
    return path


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def test_the_folder_says_where_the_model_is_from(hub: HubServer, model: Path) -> None:
    kept = read_provenance(model)
    assert kept is not None
    assert (kept.name, kept.opens, kept.licence, kept.damaged) == ("Tiny-Q4", "Tiny-Q4.gguf", "apache-2.0", ())
    assert [(file.name, file.repository, file.revision, file.sha256) for file in kept.files] == [
        (name, REPOSITORY, hub.commit(REPOSITORY), hub.sha256(f"{REPOSITORY}/{name}"))
        for name in ("Tiny-Q4.gguf", MMPROJ)
    ]


def test_a_sound_model_verifies_with_progress_that_never_falls(model: Path, library: Library) -> None:
    steps: list[Progress] = []
    assert verify(model, steps.append) == ()
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == steps[-1].total == sum(path.stat().st_size for path in model.glob("*.gguf"))
    assert len(library.list()) == 1


@pytest.mark.parametrize("spoil", [lambda path: flip(path, 1 << 20), cut, Path.unlink], ids=["flip", "cut", "unlink"])
def test_a_damaged_model_is_not_offered_and_only_its_damaged_file_is_fetched(
    spoil: Callable[[Path], None], hub: HubServer, downloads: Downloads, model: Path, library: Library
) -> None:
    spoil(model / "Tiny-Q4.gguf")
    assert verify(model) == ("Tiny-Q4.gguf",)
    assert library.list() == ()
    for name in (f"{REPOSITORY}/Tiny-Q4", str(model), str(model / "Tiny-Q4.gguf")):
        with pytest.raises(ModelFileError):
            library.resolve(name)
    item = ended(downloads, downloads.repair(model).id)
    assert (item.state, item.path) == ("done", model)
    assert hub.fetched(f"{REPOSITORY}/{MMPROJ}") == []
    assert len(hub.fetched(f"{REPOSITORY}/Tiny-Q4.gguf")) == 1
    assert [path.path for path in library.list()] == [model / "Tiny-Q4.gguf"]
    assert verify(model) == ()


def test_a_repair_that_was_broken_off_goes_on_after_a_restart(
    hub: HubServer, downloads: Downloads, model: Path, library: Library, manager: Callable[..., Downloads]
) -> None:
    flip(model / MMPROJ, 1000)
    verify(model)
    for server in hub._servers.values():
        server.stop()
    id = downloads.repair(model).id
    assert ended(downloads, id).state == "paused"
    downloads.close()
    assert library.list() == ()
    (item,) = manager().items()
    assert (item.id, item.state) == (id, "paused")
    assert {file.name: file.done for file in item.files}[MMPROJ] == 0
    assert {file.name: file.done == file.nbytes for file in item.files}["Tiny-Q4.gguf"]


def test_a_mark_that_is_not_true_any_more_is_taken_away(model: Path, library: Library) -> None:
    flip(model / "Tiny-Q4.gguf", 5000)
    verify(model)
    flip(model / "Tiny-Q4.gguf", 5000)
    assert verify(model) == ()
    assert len(library.list()) == 1


def test_verifying_can_be_cancelled(model: Path, library: Library) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        verify(model, cancel=cancel)
    assert len(library.list()) == 1


def test_a_model_of_unknown_origin_is_told_so(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="Nothing is known"):
        verify(folder)


def test_a_shared_file_that_is_damaged_is_repaired_without_touching_the_other_models_folder(
    hub: HubServer, downloads: Downloads, model: Path, library: Library
) -> None:
    other = ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q8", "Tiny-Q8.gguf", MMPROJ)).id).path
    assert other is not None
    flip(model / MMPROJ, 1000)
    verify(model)
    assert ended(downloads, downloads.repair(model).id).state == "done"
    assert verify(model) == ()
    assert verify(other) == (MMPROJ,)
    assert ended(downloads, downloads.repair(other).id).state == "done"
    assert len(hub.fetched(f"{REPOSITORY}/{MMPROJ}")) == 1
    assert len(library.list()) == 2


def repair_that_hangs(hub: HubServer, downloads: Downloads, model: Path, came: int) -> str:
    """Begin to repair a model whose weights are damaged, until so many bytes of them have come anew: → the item."""
    flip(model / "Tiny-Q4.gguf", 1 << 20)
    verify(model)
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Hang(came))
    item = downloads.repair(model)
    assert item.repair
    reached(downloads, item.id, (item.nbytes - item.files[0].nbytes) + came)
    return item.id


@pytest.mark.parametrize("paused", [False, True])
def test_a_repair_that_is_removed_gives_back_what_was_whole(
    paused: bool, hub: HubServer, downloads: Downloads, model: Path, library: Library
) -> None:
    whole = (model / MMPROJ).read_bytes()
    id = repair_that_hangs(hub, downloads, model, 1000)
    assert not model.exists()
    if paused:
        downloads.pause(id)
    downloads.remove(id)
    assert downloads.items() == () and list((library.root / ".downloads").iterdir()) == []
    assert (model / MMPROJ).read_bytes() == whole
    assert sorted(path.name for path in model.iterdir()) == [".millstream.json", MMPROJ]
    assert [(known.name, "damaged" in known.problem) for known in library.known()] == [(f"{REPOSITORY}/Tiny-Q4", True)]
    assert verify(model) == ("Tiny-Q4.gguf",)
    assert ended(downloads, downloads.repair(model).id).state == "done"
    assert verify(model) == () and len(library.list()) == 1
    assert hub.fetched(f"{REPOSITORY}/{MMPROJ}") == []


def test_a_repair_is_known_as_one_after_a_restart_and_when_it_is_asked_for_as_a_download(
    hub: HubServer, downloads: Downloads, model: Path, library: Library, manager: Callable[..., Downloads]
) -> None:
    id = repair_that_hangs(hub, downloads, model, 1000)
    downloads.close()
    again = manager()
    (item,) = again.items()
    assert (item.id, item.state, item.repair) == (id, "paused", True)
    hub.fault(f"{REPOSITORY}/Tiny-Q4.gguf", Hang(1000))
    assert item.wanted is not None and again.add(item.wanted).repair
    again.remove(id)
    assert (model / MMPROJ).exists() and len(library.known()) == 1


def test_what_has_come_whole_meanwhile_is_not_called_damaged(
    hub: HubServer, downloads: Downloads, model: Path, library: Library
) -> None:
    for name in ("Tiny-Q4.gguf", MMPROJ):
        flip(model / name, 1000)
    verify(model)
    hub.fault(f"{REPOSITORY}/{MMPROJ}", Hang(1000))
    item = downloads.repair(model)
    reached(downloads, item.id, item.files[0].nbytes + 1000)
    downloads.remove(item.id)
    kept = read_provenance(model)
    assert kept is not None and kept.damaged == (MMPROJ,)
    assert verify(model) == (MMPROJ,)


def test_a_repair_whose_place_is_taken_is_not_removed(
    hub: HubServer, downloads: Downloads, model: Path, library: Library
) -> None:
    id = repair_that_hangs(hub, downloads, model, 1000)
    downloads.pause(id)
    model.mkdir()
    with pytest.raises(StorageError, match=r"cannot go back .* Move it away"):
        downloads.remove(id)
    assert [item.id for item in downloads.items()] == [id]
    model.rmdir()
    downloads.resume(id)
    assert ended(downloads, id).state == "done"
    assert verify(model) == ()
