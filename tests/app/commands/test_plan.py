"""`millstream plan`."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from engine import Plan
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


def test_measurements_are_kept_and_made_again_on_request(millstream: Program, library: Path) -> None:
    kept = library / "cache" / "measurements.json"
    output(millstream("plan", "tiny"))
    before = kept.read_bytes()
    output(millstream("plan", "tiny"))
    assert kept.read_bytes() == before
    output(millstream("plan", "tiny", "--remeasure"))
    assert kept.read_bytes() != before
