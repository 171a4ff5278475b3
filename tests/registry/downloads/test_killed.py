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


def test_killed_at_twenty_moments_it_resumes_with_no_more_than_a_chunk_fetched_twice(
    hub: HubServer, library: Library, manager: Callable[..., Downloads]
) -> None:
    hub.add("labs/Big", {"big.gguf": Big(BYTES), "mmproj-big.gguf": Big(CHUNK)})
    order = wanted(hub, "labs/Big", "big", "big.gguf", "mmproj-big.gguf")
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
        came.append(part.stat().st_size)
        assert library.list() == ()
    hub.clear()
    last = manager(go_on=True, chunk=CHUNK)
    item = ended(last, order.id)
    assert item.state == "done"
    assert item.path is not None
    for name in ("big.gguf", "mmproj-big.gguf"):
        content = (item.path / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == hub.sha256(f"labs/Big/{name}")
    begun = [first for first, _ in hub.fetched("labs/Big/big.gguf")]
    assert begun == sorted(begun)
    # What the system's buffers held of a killed program's connection had not come to it: the part tells what had.
    assert len(set(came)) > KILLS / 2
    for there in came:
        assert any(there - CHUNK <= first <= there for first in begun)
    assert not (library.root / ".downloads" / order.id).exists()
