"""The program is killed again and again, and what had come is not fetched twice."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys
import time
from collections.abc import Callable

from registry.downloads.queue import Downloads
from registry.downloads.record import ItemFolder
from registry.library import Library
from tests.hub_faults import Big, Slow
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import ended
from tests.registry.downloads.killable import download_forever
from tests.registry.downloads.plain import wanted

CHUNK = 1 << 20
BYTES = 24 << 20
RATE = 12 << 20
KILLS = 20


def asked_from(hub: HubServer) -> list[int]:
    """The first byte of each request for the large file, in the order in which they came."""
    with hub.lock:
        spans = [asked.range or "bytes=0-" for asked in hub.requests if asked.host == "cdn" and "big" in asked.file]
    return [int(span.removeprefix("bytes=").split("-")[0]) for span in spans]


def test_killed_at_twenty_moments_it_resumes_with_no_more_than_a_chunk_fetched_twice(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    hub.add("labs/Big", {"big.gguf": Big(BYTES), "mmproj-tower.gguf": Big(CHUNK)})
    order = wanted(hub, "labs/Big", "big", "big.gguf", "mmproj-tower.gguf")
    hub.fault("labs/Big/big.gguf", Slow(RATE), times=1000)
    downloads = manager()
    downloads.add(order)
    ended(downloads, order.id, "downloading")
    downloads.close()
    part = ItemFolder(library.root, order.id).path / "files" / "big.gguf.part"
    moments = random.Random(6)
    context = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
    context.set_forkserver_preload(["tests.registry.downloads.killable"])
    came = []
    for _ in range(KILLS):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=download_forever, args=(str(library.root), hub.url, CHUNK, sender))
        child.start()
        sender.close()
        while receiver.recv() != "downloading":
            pass
        time.sleep(moments.uniform(0.0, 0.1))
        child.kill()
        child.join()
        receiver.close()
        came.append((part.stat().st_size, len(asked_from(hub))))
        assert library.list() == ()
    hub.clear()
    last = manager(go_on=True, chunk=CHUNK)
    item = ended(last, order.id)
    assert item.state == "done"
    assert item.path is not None
    for name in ("big.gguf", "mmproj-tower.gguf"):
        content = (item.path / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == hub.sha256(f"labs/Big/{name}")
    begun = asked_from(hub)
    assert begun == sorted(begun)
    assert len({there for there, _ in came}) > KILLS / 2
    # What the system's buffers held of a killed program's connection had not come to it: the part tells what had.
    for there, number in came:
        assert there - CHUNK <= begun[number] <= there
    assert not (library.root / ".downloads" / order.id).exists()
