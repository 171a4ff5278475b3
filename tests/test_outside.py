"""The watch itself: it sees what a process takes, and what the system keeps for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.cached_pages import CachedPages, forget
from tests.outside import Watched, bytes_read, in_group, linux, no_group, watch

pytestmark = linux

MB = 1 << 20
SIZE = 24 * MB


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "weights"
    path.write_bytes(bytes(SIZE))
    forget(path)
    return path


def program(body: str, file: Path) -> Watched:
    lines = f"import mmap, os, sys, time\nfile = os.open(sys.argv[1], os.O_RDONLY | {{flags}})\n{body}"
    flags = "os.O_DIRECT" if "direct" in body else "0"
    return watch([sys.executable, "-c", lines.replace("{flags}", flags), str(file)], file)


def test_memory_of_its_own_is_seen(file: Path) -> None:
    without = program("time.sleep(0.1)", file)
    held = program(f"held = b'x' * {SIZE}\ntime.sleep(0.1)", file)
    assert held.anonymous - without.anonymous == pytest.approx(SIZE, rel=0.1)
    assert held.resident - without.resident == pytest.approx(SIZE, rel=0.1)
    assert held.cached == without.cached == 0


def test_a_peak_between_two_looks_is_seen(file: Path) -> None:
    without = program("time.sleep(0.1)", file)
    peak = program(f"bytearray(b'x') * {SIZE}\ntime.sleep(0.1)", file)
    assert peak.resident - without.resident == pytest.approx(SIZE, rel=0.1)


def test_what_the_system_keeps_of_the_file_is_seen_and_direct_reads_leave_nothing(file: Path) -> None:
    through = program(f"for at in range(0, {SIZE}, {MB}): os.pread(file, {MB}, at)", file)
    assert through.cached == SIZE and through.together >= through.resident + SIZE
    forget(file)
    body = f"room = mmap.mmap(-1, {MB})\nfor at in range(0, {SIZE}, {MB}): os.preadv(file, [room], at)  # direct"
    assert program(body, file).cached == 0


def test_a_mapping_counts_as_the_process_s_and_as_the_system_s(file: Path) -> None:
    body = "m = mmap.mmap(file, 0, prot=mmap.PROT_READ)\nsum(m[::4096])\ntime.sleep(0.1)"
    mapped = program(body, file)
    assert mapped.cached == SIZE
    assert mapped.resident - program("time.sleep(0.1)", file).resident == pytest.approx(SIZE, rel=0.1)


def test_reads_are_counted(file: Path) -> None:
    counts = [0]
    body = f"import os, time\nf = os.open({str(file)!r}, os.O_RDONLY)\nos.pread(f, {SIZE}, 0)\ntime.sleep(0.2)"
    watch([sys.executable, "-c", body], file, meanwhile=lambda pid: counts.append(bytes_read(pid)))
    assert SIZE <= max(counts) < SIZE + 20 * MB


def test_pages_of_a_file_that_became_shorter_are_still_counted(file: Path) -> None:
    file.read_bytes()
    with CachedPages(file) as pages:
        assert pages.nbytes() == SIZE
        with file.open("r+b") as open_file:
            open_file.truncate(SIZE // 2)
        assert pages.nbytes() == SIZE // 2


def test_a_group_kills_what_takes_more_than_it_may(file: Path) -> None:
    if reason := no_group():
        pytest.skip(reason)
    command = [sys.executable, "-c", f"held = b'x' * {256 * MB}"]
    assert watch(in_group(command, 128 * MB), file).code != 0
    assert watch(in_group(command, 512 * MB), file).code == 0
