"""What is foretold, against the same worked out by hand for made-up models on a made-up machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.memory.figures import Drive, Speed, Speeds
from engine.memory.forecast import SERIAL, WINDOW, Flow, forecast, weighty
from engine.memory.planner import Item, Tiers
from engine.memory.step import Step
from engine.memory.uses import PaperWeight, Use

ENOUGH = 1 << 30
DRIVE = Drive(bandwidth=1e6, latency=1e-4, threads=4, block_bytes=4096)
SPEEDS = Speeds({"F32": Speed(passed=4e6, multiply_adds=1e8), "F16": Speed(passed=2e6, multiply_adds=5e7)}, walk=1e-3)
WIDE = PaperWeight("wide", "F32", rows=1000, columns=100)  # 400 000 bytes
HALF = PaperWeight("half", "F16", rows=1000, columns=100)  # 200 000 bytes
HEAD = PaperWeight("head", "F32", rows=500, columns=100)  # 200 000 bytes
EXPERT = PaperWeight("expert", "F32", rows=100, columns=100, matrices=8)  # 40 000 bytes each
DENSE = Step((Use("walk", (WIDE,)), Use("walk", (HALF,))), (Use("walk", (HEAD,)),), ())
MIXTURE = Step((Use("walk", (WIDE,)), Use("experts", (EXPERT,), count=2)), (Use("walk", (HEAD,)),), ())


def item(name: str, nbytes: int, passed: int, kind: str = "attention") -> Item:
    return Item(name, (name,), kind, 0, nbytes, passed, (passed,), 10, 1, True)  # type: ignore[arg-type]


ITEMS = [item("wide", 400_000, 400_000), item("half", 200_000, 200_000), item("head", 200_000, 200_000)]
MIXED = [ITEMS[0], item("expert", 320_000, 80_000, "experts"), ITEMS[2]]


def together(computing: float, reading: float) -> float:
    return max(computing, reading) + SERIAL * min(computing, reading)


def test_in_memory_each_encoding_takes_its_own_time_and_each_walk_its_own() -> None:
    told = forecast(DENSE, None, SPEEDS, chunk=10, cached=0)
    seconds = 0.6 / 4 + 0.2 / 2 + 3e-3
    assert told.tok_s == pytest.approx(1 / seconds)
    assert told.computing == pytest.approx(0.8e6 / seconds)
    assert forecast(DENSE, None, SPEEDS, chunk=10, cached=20_000).tok_s == pytest.approx(1 / (seconds + 0.01))


def test_of_a_prompt_only_the_last_row_goes_through_the_head() -> None:
    told = forecast(DENSE, None, SPEEDS, chunk=10, cached=0)
    seconds = 10 * (1e5 / 1e8 + 1e5 / 5e7) + 0.2 / 4 + 3e-3
    assert told.prefill_tok_s == pytest.approx(10 / seconds)


def test_what_streams_takes_the_longer_of_reading_and_computing() -> None:
    flow = Flow(ITEMS, Tiers({}, {"head": 200_000}), DRIVE, block_bytes=60_000, arena=ENOUGH)
    told = forecast(DENSE, flow, SPEEDS, chunk=10, cached=0)
    windows = 800_000 / 60_000 * 600_000 / 800_000
    computing = 0.6 / 4 + 0.2 / 2 + 3e-3 + windows * WINDOW
    assert told.tok_s == pytest.approx(1 / together(computing, 0.6))
    slow = replace(flow, drive=replace(DRIVE, bandwidth=1e9))
    assert forecast(DENSE, slow, SPEEDS, chunk=10, cached=0).tok_s == pytest.approx(1 / together(computing, 6e-4))


def test_blocks_of_few_rows_cost_more_handing_over() -> None:
    tiers = Tiers({}, {})
    whole, single = (
        forecast(DENSE, Flow(ITEMS, tiers, DRIVE, 60_000, ENOUGH, rows), SPEEDS, chunk=1, cached=0)
        for rows in (None, 1)
    )
    computing = 0.6 / 4 + 0.2 / 2 + 3e-3 + 2500 * WINDOW
    assert single.tok_s == pytest.approx(1 / together(computing, 0.8)) and single.tok_s < whole.tok_s


@pytest.mark.parametrize("slab", [0, 80_000, 320_000])
def test_experts_are_read_beside_their_own_computing_alone(slab: int) -> None:
    flow = Flow(MIXED, Tiers({}, {"head": 200_000}, slab), DRIVE, block_bytes=1 << 40, arena=1 << 50)
    told = forecast(MIXTURE, flow, SPEEDS, chunk=4, cached=0)
    missed = 1 - slab / 320_000
    dense, experts = 0.6 / 4 + 2e-3, 0.08 / 4 + 1e-3
    assert told.tok_s == pytest.approx(1 / (together(dense, 0.4) + together(experts, 0.08 * missed)), rel=1e-6)
    different = 8 * (1 - (1 - 2 / 8) ** 4)  # of four rows that choose two of eight
    chunk = together(4 * 1e5 / 1e8 + 0.2 / 4 + 2e-3, 0.4)
    chunk += together(4 * 2e4 / 1e8 + 1e-3, different * 0.04 * missed)
    assert told.prefill_tok_s == pytest.approx(4 / chunk, rel=1e-6)


def test_encodings_that_hardly_any_byte_has_do_not_count() -> None:
    little = Use("walk", (PaperWeight("router", "BF16", rows=10, columns=100),))
    assert weighty(Step((*DENSE.body, little), DENSE.head, ())) == {"F32", "F16"}


def test_few_small_blocks_at_once_are_waited_for() -> None:
    flow = Flow(ITEMS, Tiers({}, {}), DRIVE, block_bytes=1000, arena=ENOUGH)
    assert flow.bandwidth == DRIVE.bandwidth
    each = 1e-4 + 1000 * 4 / 1e6  # its own latency, and its share of the drive that four readers exhaust
    assert replace(flow, arena=2000).bandwidth == replace(flow, arena=1000).bandwidth == pytest.approx(1000 / each)
    assert replace(flow, arena=4000).bandwidth == pytest.approx(3000 / each)
