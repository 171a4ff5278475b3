"""Reads of a file and nothing else, by plain threads: what a program that streams from it can reach at most.

Takes one JSON object on standard input, {"path", "reads": [[offset, bytes], …], "threads", "direct", "room", "used"},
and prints the seconds from the first read to the last. It stands alone, in a process of its own, so that nothing but
the reads is timed. Past the system's cache, reads are widened to whole pages; without `direct` they go through it.

They go into `room` bytes of memory, one place after the other: into a few megabytes, which the processor's cache holds,
a virtual drive delivers up to a quarter faster than into more. Where they are `used`, another thread adds up the bytes
of each, once: no program does less with weights, and what it takes of the memory's bandwidth a drive cannot have.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

PAGE = 4096
LARGE_PAGE = 2 << 20


def large_room(nbytes: int) -> memoryview:
    """Memory in large pages where the system has them: a drive delivers into it in longer pieces, and so faster."""
    room = mmap.mmap(-1, nbytes + 2 * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % LARGE_PAGE
    return memoryview(room)[start : start + nbytes]


def plain_reads(
    path: str, reads: list[list[int]], threads: int, direct: bool = True, room: int = 0, used: bool = False
) -> float:
    """Read all of these in their order, by so many threads at once: → seconds."""
    widened = []
    for offset, nbytes in reads:
        start = offset // PAGE * PAGE
        widened.append((start, -(-(offset + nbytes) // PAGE) * PAGE - start))
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    jobs, lock, failures = iter(widened), threading.Lock(), []
    largest = max(nbytes for _, nbytes in widened)
    places = max(room // largest, threads + used)
    memory = large_room(places * largest)
    memory[::PAGE] = bytes(len(memory[::PAGE]))  # memory that was touched, as a program's own is
    free: SimpleQueue[int] = SimpleQueue()
    filled: SimpleQueue[tuple[int, int]] = SimpleQueue()
    for place in range(places):
        free.put(place)

    def work() -> None:
        while True:
            place = free.get()
            with lock:
                job = next(jobs, None)
            if job is None:
                free.put(place)
                return
            offset, nbytes = job
            into = memory[place * largest : place * largest + nbytes]
            done = 0
            try:
                while done < nbytes:
                    count = os.preadv(file, [into[done:]], offset + done)
                    if count == 0:  # the last page of a file is a short one
                        break
                    done += count
            except OSError as error:
                failures.append(f"{error.strerror} at byte {offset}")
            else:
                if done < nbytes - PAGE:
                    failures.append(f"the file ends before byte {offset}")
            filled.put((place, nbytes))

    use = _adding() if used else lambda _: None
    workers = [threading.Thread(target=work) for _ in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for _ in widened:
        place, nbytes = filled.get()
        use(memory[place * largest : place * largest + nbytes])
        free.put(place)
    seconds = time.perf_counter() - started
    for worker in workers:
        worker.join()
    os.close(file)
    if failures:
        raise SystemExit(failures[0])
    return seconds


def _adding() -> Callable[[memoryview], object]:
    import numpy as np  # only here: the reads themselves need no packages

    return lambda memory: np.frombuffer(memory, np.int64).sum()


if __name__ == "__main__":
    print(plain_reads(**json.load(sys.stdin)))
