"""What a person chose for a model is kept, and no damage to the record keeps the program from anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.budgets.chosen import ChosenBudgets
from engine.types import Budgets

CHOSEN = Budgets(ram=3_000_000_000, context=4096, kv="q8_0", threads=3)


def test_it_is_there_at_the_next_start_for_that_model_alone(folder: Path) -> None:
    record = folder / "new" / "budgets.json"
    ChosenBudgets(record).choose(folder / "one.gguf", CHOSEN)
    ChosenBudgets(record).choose(folder / "two.gguf", Budgets(ram=1000))
    assert ChosenBudgets(record).of(folder / "one.gguf") == CHOSEN
    assert ChosenBudgets(record).of(folder / "two.gguf") == Budgets(ram=1000)
    assert ChosenBudgets(record).of(folder / "three.gguf") is None


def test_what_leaves_everything_open_is_not_kept(folder: Path) -> None:
    kept = ChosenBudgets(folder / "budgets.json")
    kept.choose(folder / "one.gguf", CHOSEN)
    kept.choose(folder / "one.gguf", Budgets())
    assert kept.of(folder / "one.gguf") is None


def test_a_checkpoint_is_its_folder_whichever_way_it_is_named(folder: Path) -> None:
    kept = ChosenBudgets(folder / "budgets.json")
    kept.choose(folder / "Model" / "model-00001-of-00002.safetensors", CHOSEN)
    assert kept.of(folder / "Model") == CHOSEN


@pytest.mark.parametrize("written", ["", "{", "[]", '{"models": 3}', '{"models": [{"path": 1}]}', "[" * 100_000])
def test_a_damaged_record_is_one_without_a_choice(folder: Path, written: str) -> None:
    record = folder / "budgets.json"
    record.write_text(written)
    kept = ChosenBudgets(record)
    assert kept.of(folder / "one.gguf") is None
    kept.choose(folder / "one.gguf", CHOSEN)
    assert kept.of(folder / "one.gguf") == CHOSEN


@pytest.mark.parametrize(
    ("name", "value"), [("kv", "q1"), ("threads", 100_000), ("ram", -1), ("context", "all"), ("ram", None)]
)
def test_a_choice_that_cannot_be_takes_no_other_with_it(folder: Path, name: str, value: object) -> None:
    record = folder / "budgets.json"
    kept = ChosenBudgets(record)
    for model in ("one.gguf", "two.gguf"):
        kept.choose(folder / model, CHOSEN)
    written = json.loads(record.read_text())
    written["models"][0][name] = value
    record.write_text(json.dumps(written))
    assert kept.of(folder / "one.gguf") is None
    assert kept.of(folder / "two.gguf") == CHOSEN


def test_a_disk_that_refuses_makes_it_forget(folder: Path) -> None:
    (folder / "file").write_bytes(b"")
    kept = ChosenBudgets(folder / "file" / "budgets.json")
    kept.choose(folder / "one.gguf", CHOSEN)
    assert kept.of(folder / "one.gguf") is None
