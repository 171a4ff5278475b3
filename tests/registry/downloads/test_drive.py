"""A library whose drive is pulled: nothing is kept where that was joined, and nothing that came is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import StorageError
from registry.downloads.queue import Downloads
from registry.library import Library
from registry.place import MARKER, mark
from tests.hub_faults import Hang
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import REPOSITORY, ended, reached
from tests.registry.downloads.plain import PlainSource, wanted

MEBI = 1 << 20
WHERE = f"{REPOSITORY}/Tiny-Q4.gguf"


@pytest.fixture
def joined(library: Library) -> Path:
    """What stands where the drive was joined is a folder of another drive."""
    return library.root


def pull(joined: Path, bare: bool) -> Path:
    """Have the drive be gone, with the folder in which it was joined or without: → where it is now."""
    gone = joined.with_name("pulled")
    joined.rename(gone)
    if bare:
        joined.mkdir()
    return gone


def connect(gone: Path, joined: Path) -> None:
    if joined.exists():
        joined.rmdir()
    gone.rename(joined)


def at(joined: Path) -> list[Path]:
    return list(joined.rglob("*")) if joined.exists() else []


@pytest.mark.parametrize("bare", [False, True])
def test_a_drive_pulled_during_a_download_pauses_it_and_it_goes_on_where_it_was(
    bare: bool, hub: HubServer, library: Library, joined: Path, manager: Callable[..., Downloads]
) -> None:
    hub.fault(WHERE, Hang(MEBI + 5))
    downloads = manager()
    id = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id
    reached(downloads, id, MEBI + 5)
    gone = pull(joined, bare)
    hub.release()
    item = ended(downloads, id)
    assert item.state == "paused"
    for _ in range(2):
        assert "is gone" in item.sentence and "resume the download" in item.sentence
        assert joined.exists() == bare and at(joined) == []
        downloads.resume(id)
        item = ended(downloads, id)
    connect(gone, joined)
    downloads.resume(id)
    assert ended(downloads, id).state == "done"
    assert [model.name for model in library.list()] == [f"{REPOSITORY}/Tiny-Q4"]
    assert all(first >= MEBI // 2 for first, _ in hub.fetched(WHERE)[1:])


def test_nothing_is_begun_where_the_drive_of_a_library_was_pulled(
    hub: HubServer, library: Library, joined: Path, manager: Callable[..., Downloads]
) -> None:
    downloads = manager()
    ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q8", "Tiny-Q8.gguf")).id)
    gone = pull(joined, bare=False)
    order = wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")
    with pytest.raises(StorageError, match=r"is gone.*connect that again"):
        downloads.add(order)
    assert not joined.exists()
    connect(gone, joined)
    assert ended(downloads, downloads.add(order).id).state == "done"
    assert len(library.list()) == 2


def test_a_chosen_folder_that_has_lost_its_marker_takes_no_download(
    hub: HubServer, library: Library, joined: Path
) -> None:
    mark(joined)
    with Downloads(replace(library, chosen=True), [PlainSource(hub.url)], margin=0) as downloads:
        gone = pull(joined, bare=True)
        with pytest.raises(StorageError, match="Connect the drive"):
            downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf"))
        assert at(joined) == []
        connect(gone, joined)
        assert (joined / MARKER).is_file()
        item = downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf"))
        assert ended(downloads, item.id).state == "done"


def test_a_library_that_never_was_is_made_by_its_first_download(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    assert not library.root.exists()
    downloads = manager()
    assert ended(downloads, downloads.add(wanted(hub, REPOSITORY, "Tiny-Q4", "Tiny-Q4.gguf")).id).state == "done"
