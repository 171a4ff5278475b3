"""Reads of a file and nothing else, by plain threads: what a program that streams from it can reach at most.

Takes one JSON object on standard input, {"path", "reads": [[offset, bytes], …], "threads", "direct"}, and prints the
seconds from the first read to the last. It stands alone, in a process of its own, so that nothing but the reads is
timed. Past the system's cache, reads are widened to whole pages; without `direct` they go through it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import threading
import time

PAGE = 4096
LARGE_PAGE = 2 << 20


def large_room(nbytes: int) -> memoryview:
    """Memory in large pages where the system has them: a drive delivers into it in longer pieces, and so faster."""
    room = mmap.mmap(-1, nbytes + 2 * LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % LARGE_PAGE
    return memoryview(room)[start : start + nbytes]


def plain_reads(path: str, reads: list[list[int]], threads: int, direct: bool) -> float:
    """Read all of these in their order, by so many threads at once: → seconds."""
    widened = []
    for offset, nbytes in reads:
        start = offset // PAGE * PAGE
        widened.append((start, -(-(offset + nbytes) // PAGE) * PAGE - start))
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    jobs, lock, failures = iter(widened), threading.Lock(), []
    largest = max(nbytes for _, nbytes in widened)
    rooms = [large_room(largest) for _ in range(threads)]
    for room in rooms:
        room[::PAGE] = bytes(len(room[::PAGE]))  # memory that was touched, as a program's own is

    def work(room: memoryview) -> None:
        while True:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            offset, nbytes = job
            done = 0
            while done < nbytes:
                count = os.preadv(file, [room[done:nbytes]], offset + done)
                if count == 0:  # the last page of a file is a short one
                    break
                done += count
            if done < nbytes - PAGE:
                failures.append(offset)

    workers = [threading.Thread(target=work, args=(room,)) for room in rooms]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    os.close(file)
    if failures:
        raise SystemExit(f"the file ends before byte {failures[0]}")
    return seconds


if __name__ == "__main__":
    print(plain_reads(**json.load(sys.stdin)))
