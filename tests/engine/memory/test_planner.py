"""The choice of what stays in memory, against brute force, and what follows from it for real files."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from engine.formats import open_index
from engine.formats.index import TensorInfo
from engine.memory.figures import Drive
from engine.memory.outline import whole_outline
from engine.memory.planner import (
    GRANULE,
    Costs,
    Item,
    Kind,
    Tiers,
    fill,
    in_order,
    items_of,
    place,
    placement_of,
    read_per_token,
    row_count,
)
from engine.memory.rows import can_be_lent
from engine.memory.step import step_of
from tests.engine.formats.checkpoints import write_checkpoint
from tests.engine.models.families import FAMILIES
from tests.engine.models.test_sweep import TABLE, Swept

COSTS = Costs(Drive(bandwidth=1e6, latency=1e-4, threads=4, block_bytes=4096))


def item(name: str, nbytes: int, passed: int, *, layer: int = 0, kind: Kind = "attention", **changes: object) -> Item:
    """`nbytes` in rows of one byte."""
    made: dict[str, object] = {
        "tensors": (name,),
        "stretches": (passed,),
        "rows": nbytes,
        "granule": 1,
        "can_be_lent": True,
    }
    return Item(name=name, kind=kind, layer=layer, nbytes=nbytes, passed=passed, **(made | changes))  # type: ignore[arg-type]


def saved(items: list[Item], held: dict[str, int], costs: Costs = COSTS) -> float:
    return sum(costs.density(one) * held.get(one.name, 0) for one in items)


def random_items(draws: random.Random, count: int) -> list[Item]:
    return [
        item(str(i), size := draws.randint(1, 60) * 100, draws.randint(0, size), layer=draws.randint(0, 7))
        for i in range(count)
    ]


def test_what_is_saved_is_at_least_that_of_the_best_whole_items_and_no_other_parts_save_more() -> None:
    draws = random.Random(5)
    for _ in range(60):
        items = random_items(draws, draws.randint(1, 9))
        total = sum(one.nbytes for one in items)
        room = draws.randint(0, total)
        held, slab = fill(items, COSTS, room)
        value = saved(items, held)
        best = max(
            saved(items, {one.name: one.nbytes for one, taken in zip(items, choice, strict=True) if taken})
            for choice in product((False, True), repeat=len(items))
            if sum(one.nbytes for one, taken in zip(items, choice, strict=True) if taken) <= room
        )
        assert slab == 0 and sum(held.values()) == room
        assert value >= best * (1 - 1e-12)
        for _ in range(20):  # any other way to fill the same room
            others, left = {}, room
            for one in draws.sample(items, len(items)):
                others[one.name] = draws.randint(0, min(one.nbytes, left))
                left -= others[one.name]
            assert saved(items, others) <= value * (1 + 1e-12)


def test_where_whole_items_fill_the_room_they_are_the_best_whole_items() -> None:
    draws = random.Random(6)
    for _ in range(40):
        items = random_items(draws, 8)
        taken = in_order(items, COSTS)[: draws.randint(0, 8)]
        room = sum(one.nbytes for one in taken)
        best = max(
            saved(items, {one.name: one.nbytes for one, chosen in zip(items, choice, strict=True) if chosen})
            for choice in product((False, True), repeat=8)
            if sum(one.nbytes for one, chosen in zip(items, choice, strict=True) if chosen) <= room
        )
        assert saved(items, fill(items, COSTS, room)[0]) == pytest.approx(best)


def test_equals_are_spread_over_the_layers() -> None:
    items = [item(f"blk.{layer}", 100, 100, layer=layer) for layer in range(8)]
    held, _ = fill(items, COSTS, 400)
    assert sorted(held) == ["blk.0", "blk.2", "blk.4", "blk.6"]
    held, _ = fill(items, COSTS, 200)
    assert sorted(held) == ["blk.0", "blk.4"]


def test_parts_are_whole_granules_and_never_more_than_the_room() -> None:
    one = item("a", 1000 * 7, 7000, rows=1000, granule=16)
    for room in range(0, 7100, 53):
        held = fill([one], COSTS, room)[0].get("a", 0)
        assert held <= room
        assert held == 7000 or (held % (7 * 16) == 0 and room - held < 7 * 16)


def test_what_cannot_be_lent_stays_and_tables_come_last() -> None:
    norm = item("norm", 50, 50, can_be_lent=False)
    table = item("table", 5000, 10, kind="embedding", single=True)
    dense = item("dense", 1000, 1000)
    assert fill([table, dense, norm], COSTS, 50)[0] == {"norm": 50}
    assert fill([table, dense, norm], COSTS, 650)[0] == {"norm": 50, "dense": 600}
    assert fill([table, dense, norm], COSTS, 2050)[0] == {"norm": 50, "dense": 1000, "table": 1000}


def experts(layer: int) -> Item:
    return item(
        f"experts {layer}", 8000, 2000, layer=layer, kind="experts", stretches=(400, 300, 300) * 2, rows=0, granule=0
    )


def test_what_dense_weights_leave_is_a_slab_unless_all_experts_fit() -> None:
    items = [experts(0), experts(1), item("dense", 1000, 1000), item("table", 500, 1, kind="embedding", single=True)]
    dense = {"dense": 1000}
    assert fill(items, COSTS, 1500) == (dense | {"table": 500}, 0)  # not even one expert
    assert fill(items, COSTS, 2000) == (dense, 1000)
    assert fill(items, COSTS, 16_999) == (dense, 15_999)
    assert fill(items, COSTS, 17_200) == (dense | {"experts 0": 8000, "experts 1": 8000, "table": 200}, 0)
    tiers = place(items, COSTS, vram=0, ram=9000)
    assert tiers.slab == 8000
    assert read_per_token(items, tiers) == 1 + 2 * 2000 // 2


def test_more_memory_never_reads_more_and_is_never_passed() -> None:
    draws = random.Random(7)
    for _ in range(30):
        items = [*random_items(draws, 8), *(experts(layer) for layer in range(3))]
        items.append(item("norm", 77, 77, can_be_lent=False))
        total, last = sum(one.nbytes for one in items), None
        for room in sorted(draws.randint(77, total) for _ in range(25)):
            held, slab = fill(items, COSTS, room)
            assert sum(held.values()) + slab <= room
            read = sum(COSTS.seconds(one) * (1 - held.get(one.name, 0) / one.nbytes) for one in items)
            waited = read - COSTS.seconds(experts(0)) * 3 * slab / 24_000
            assert last is None or waited <= last + 1e-9
            last = waited


def test_a_card_takes_dense_weights_first_and_experts_stay_where_they_lie() -> None:
    items = [experts(0), experts(1), item("a", 1000, 1000), item("b", 900, 900), item("t", 600, 2, kind="embedding")]
    assert place(items, COSTS, vram=1950, ram=16_600).vram == {"a": 1000, "b": 900}
    whole = place(items, COSTS, vram=10_500, ram=9000)
    assert whole.vram == {"a": 1000, "b": 900, "experts 0": 8000, "t": 600}
    assert whole.ram == {"experts 1": 8000} and whole.slab == 0
    assert all(whole.on_disk(one) == 0 for one in items)


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_items_are_all_that_a_model_uses_and_rows_follow_from_bytes(family: str, tmp_path: Path) -> None:
    made = FAMILIES[family]
    made.write(tmp_path / "tiny.gguf", made.make(**TABLE.get(family, Swept()).changes), "Q8_0")
    index = open_index(tmp_path / "tiny.gguf")
    outlined = whole_outline(index, 1)
    step = step_of(outlined.model)
    items = items_of(index, outlined, step)
    names = [name for one in items for name in one.tensors]
    assert sorted(names) == sorted(outlined.used) and set(names) <= index.tensors.keys()
    assert sum(one.nbytes for one in items) == sum(index.tensors[name].nbytes for name in names)
    assert all(not one.can_be_lent for one in items if len(index.tensors[one.tensors[0]].shape) == 1)
    always = sum(one.nbytes for one in items if not one.can_be_lent)
    total = sum(one.nbytes for one in items)
    assert 0 < always < total / 2
    for room in (always, (always + total) // 3, (always + total) // 2, total - 1, total):
        tiers = place(items, COSTS, vram=0, ram=room)
        placement = placement_of(index, items, tiers, step, arena=1, block_bytes=2, io_threads=3, block_rows=None)
        held = sum(
            index.tensors[name].nbytes // row_count(index.tensors[name]) * n for name, n in placement.held.items()
        )
        assert held == sum(tiers.ram.values()) <= room
        for name, rows in placement.held.items():
            assert rows == row_count(index.tensors[name]) or rows % GRANULE == 0
        lent = {name for name in placement.held if placement.is_lent(index, name)}
        assert lent == {name for one in items if tiers.on_disk(one) for name in one.tensors}
        assert {weight.tensor for weights in placement.order for weight in weights} >= lent
        assert bool(placement.experts) == any(one.kind == "experts" and tiers.on_disk(one) for one in items)
        for layer, trio in placement.experts.items():
            assert all(f"blk.{layer}." in weight.tensor for weight in (trio.gate, trio.up, trio.down))
    assert not lent


@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen35moe"])
def test_rows_of_heads_that_lie_apart_in_a_checkpoint_are_held_by_whole_heads(name: str, tmp_path: Path) -> None:
    changes = {"head_dim": 24} if name == "llama" else {}
    write_checkpoint(tmp_path, FAMILIES[name].make(**changes))
    index = open_index(tmp_path)
    outlined = whole_outline(index, 1)
    items = items_of(index, outlined, step_of(outlined.model))
    apart = [one for one in items if index.tensors[one.tensors[0]].split_heads]
    assert bool(apart) == (name != "qwen35moe")
    for one in apart:
        head = index.tensors[one.name].shape[0] // index.tensors[one.name].split_heads
        assert one.can_be_lent and one.granule % head == one.granule % GRANULE == 0
    mixed = [one for one in items if one.kind == "experts"]
    assert all(one.can_be_lent for one in mixed) and bool(mixed) == (name != "llama")


def test_what_changes_on_its_way_from_disk_is_not_lent() -> None:
    info = TensorInfo("w", (32, 64), "F32", Path("file"), 0, 8192)
    assert can_be_lent(info) and can_be_lent(info, matrices=4)
    for change in ({"transposed": True}, {"shift": 1.0}, {"logarithms": True}):
        assert not can_be_lent(replace(info, **change))
    assert can_be_lent(replace(info, split_heads=4)) and not can_be_lent(replace(info, split_heads=4), matrices=2)


def test_an_empty_plan_reads_all_that_is_passed() -> None:
    items = [item("a", 1000, 1000), item("table", 800, 8, single=True), experts(0)]
    assert read_per_token(items, Tiers({}, {})) == 1000 + 8 + 2000
    assert read_per_token(items, Tiers({}, {"a": 250})) == 750 + 8 + 2000
