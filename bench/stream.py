"""How near the stream of weights comes to plain parallel reads of the same blocks, both past the system's cache.

    python -m bench.stream MODEL --block-kb 1024 --arena-mb 16 --threads 4 --limit-mb 256 --rounds 3

The stream alone, without an engine: `bench.streaming` has decoding as a whole.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import cast

import numpy as np

from engine.formats import open_index
from engine.formats.index import TensorInfo
from engine.memory.arena import Arena, Lease
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.rows import can_be_lent
from engine.memory.stream import Stream


def chosen(path: Path, limit: int) -> list[TensorInfo]:
    """Matrices in the order of the file, of `limit` bytes together."""
    tensors = sorted(open_index(path).tensors.values(), key=lambda info: (str(info.path), info.offset))
    matrices = [info for info in tensors if len(info.shape) >= 2 and can_be_lent(info)]
    total, picked = 0, []
    for info in matrices:
        if total < limit:
            picked.append(info)
            total += info.nbytes
    return picked


def plain(files: ModelFiles, tensors: list[TensorInfo], block: int, threads: int) -> float:
    """Bytes a second of so many threads that each read whole pages of the next block."""
    blocks = iter(
        [
            (files[info.path], at, min(block, -(-(info.offset + info.nbytes - at) // 4096) * 4096))
            for info in tensors
            for at in range(info.offset // 4096 * 4096, info.offset + info.nbytes, block)
        ]
    )
    lock, done, arena = threading.Lock(), [0] * threads, Arena(threads * block)
    rooms = [cast(Lease, arena.take(block)) for _ in range(threads)]

    def work(number: int) -> None:
        room = rooms[number].data.data
        while True:
            with lock:
                following = next(blocks, None)
            if following is None:
                return
            file, offset, nbytes = following
            done[number] += file.read_pages(room[:nbytes], offset, "block", 1)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - started)


def streamed(stream: Stream, matrices: list) -> float:
    """Bytes read a second with a consumer that touches every window."""
    before, started = stream.counts, time.perf_counter()
    for matrix in matrices:
        for window in stream.walk([matrix]):
            window.data[0][0].sum()
    return (stream.counts - before).read / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--block-kb", type=int, default=1024)
    parser.add_argument("--arena-mb", type=int, default=16)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--limit-mb", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    block = options.block_kb << 10
    tensors = chosen(options.model, options.limit_mb << 20)
    files, pool = ModelFiles(keep_cached=False), ReadPool(options.threads)
    stream = Stream(files, pool, Arena(options.arena_mb << 20), block_bytes=block)
    matrices = [stream.matrix(info) for info in tensors]
    print("direct:", all(files[info.path].direct for info in tensors))
    streamed(stream, matrices)
    ratios = []
    for turn in range(options.rounds):
        floor = 0.0 if turn % 2 else plain(files, tensors, block, options.threads)
        cpu, before = time.process_time(), stream.counts
        speed = streamed(stream, matrices)
        cpu, did = time.process_time() - cpu, stream.counts - before
        floor = floor or plain(files, tensors, block, options.threads)  # whoever is second may find a cache below
        ratios.append(speed / floor)
        print(
            f"plain {floor / 1e9:.2f} GB/s, streamed {speed / 1e9:.2f} GB/s, ratio {ratios[-1]:.3f}, "
            f"{did.windows} windows, ready {did.ready / did.windows:.0%}, stalled {did.stalled:.2f} s, "
            f"{cpu / did.windows * 1e6:.0f} µs of processor a window, read {did.read / did.lent:.4f} of what was lent"
        )
    print(f"median ratio {np.median(ratios):.3f}")
    pool.close()
    files.close()


if __name__ == "__main__":
    main()
