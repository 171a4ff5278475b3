"""`millstream plan`."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from app.commands.plan import long_ago
from engine import Plan
from engine.cores import processors
from engine.memory.figures import Dated, Drive, keep, load
from tests.app.running import Program, output, refusal


def test_it_tells_what_lies_where_and_how_fast_that_is(millstream: Program) -> None:
    told = output(millstream("plan", "tiny"))
    blocks = told.removesuffix("\n").split("\n\n")
    assert len(blocks) == 4
    assert blocks[0].split("\n")[0].split() == ["RAM"] and blocks[0].split("\n")[-1].startswith("total")
    assert blocks[1].startswith("memory granted")
    assert "256 tokens, cached in f16" in blocks[2]
    assert blocks[3].startswith("Fits into memory; about ") and blocks[3].endswith("tokens/s.")


def test_it_gives_the_plan_as_one_json_object(millstream: Program) -> None:
    told = json.loads(output(millstream("plan", "tiny", "--json", "--context", "64", "--kv", "f32", "--chunk", "16")))
    assert set(told) == {field.name for field in fields(Plan)}
    assert (told["context"], told["kv_kind"]) == (64, "f32")
    assert {placed["tier"] for placed in told["placed"]} == {"RAM"}
    assert told["read_per_token"] == 0 < told["passed_per_token"]


def test_the_granted_memory_is_kept_to_and_too_little_is_refused_with_the_least(millstream: Program) -> None:
    told = json.loads(output(millstream("plan", "tiny", "--json", "--ram", "50MB")))
    assert told["ram"] == 50_000_000
    said = refusal(millstream("plan", "starter", "--ram", "1MB"))
    assert "at least" in said


def test_it_tells_what_there_is_less_of_than_was_wanted(millstream: Program, starter: Path) -> None:
    told = output(millstream("plan", "tiny", "--ram", "1PB")).split("\n\n")[-1]
    assert re.search(r"\n1\.0 PB were granted, .* are free: the plan uses that\.\n$", told)
    told = output(millstream("plan", str(starter), "--ram", "60MB")).split("\n\n")[-1]
    assert told.endswith("\nMemory is short: the context is 1,024 tokens instead of 8,192.\n")


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_narrow_terminal_breaks_no_line_by_itself(
    millstream: Program, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    told = output(millstream("plan", "tiny"))
    assert all(len(line) <= max(int(columns), 60) for line in told.splitlines())
    assert all(len(line) <= int(columns) for line in told.split("\n\n")[2].splitlines())


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (-1, ""),
        (0.99, ""),
        (1, "1 day"),
        (1.99, "1 day"),
        (2, "2 days"),
        (13, "13 days"),
        (21.5, "3 weeks"),
        (90, "3 months"),
        (800, "2 years"),
    ],
)
def test_an_age_is_told_in_the_largest_unit_that_says_enough(days: float, told: str) -> None:
    assert long_ago(days * 86_400) == told


def test_old_figures_are_told_as_such_and_those_of_the_disk_though_nothing_streams(
    millstream: Program, library: Path
) -> None:
    kept = library / "cache" / "measurements.json"
    output(millstream("plan", "tiny", "--threads", "1", "--remeasure"))
    device = str((library / "models" / "tiny.gguf").stat().st_dev)
    drive = Dated(Drive(bandwidth=1.5e9, latency=8e-5, threads=8, block_bytes=1 << 20), int(time.time()) - 22 * 86_400)
    told = output(millstream("plan", "tiny", "--threads", "1"))
    assert "ago" not in told
    keep(kept, lambda figures: figures.drives.update({device: drive}))
    told = output(millstream("plan", "tiny", "--threads", "1"))
    assert "disk          1.5 GB/s" in told and "measured      3 weeks ago; --remeasure measures anew" in told


def test_threads_that_the_machine_does_not_run_at_once_are_told_of_and_not_believed(
    millstream: Program, library: Path
) -> None:
    most = processors()
    few, many = (output(millstream("plan", "tiny", "--threads", str(number))) for number in (most, most + 1))
    assert "at once here" not in few
    assert f"threads       {most + 1}, but only {most} run at once here" in many
    assert few.splitlines()[-1] == many.splitlines()[-1]
    assert set(load(library / "cache" / "measurements.json").speeds) <= set(range(1, most + 1))


@pytest.mark.skipif(sys.platform == "win32", reason="no fifos")
def test_a_pipe_in_the_place_of_the_measurements_is_not_waited_for(millstream: Program, library: Path) -> None:
    kept = library / "cache" / "measurements.json"
    kept.parent.mkdir(exist_ok=True)
    kept.unlink(missing_ok=True)
    os.mkfifo(kept)
    output(millstream("plan", "tiny"))
    assert kept.is_file()


def test_measurements_are_kept_and_made_again_on_request(millstream: Program, library: Path) -> None:
    kept = library / "cache" / "measurements.json"
    output(millstream("plan", "tiny"))
    before = kept.read_bytes()
    output(millstream("plan", "tiny"))
    assert kept.read_bytes() == before
    output(millstream("plan", "tiny", "--remeasure"))
    assert kept.read_bytes() != before
