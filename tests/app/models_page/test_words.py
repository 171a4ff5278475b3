"""What the page says and decides without a window: filters, figures, the one button."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from app.models_page.acts import Choice, choice_of
from app.models_page.figures import count, day, left, of_size
from app.models_page.filters import Filter, fits_likely, sees, weights_of
from app.models_page.fitness import Fitness, explained, words
from app.models_page.last_used import LastUsed
from app.models_page.suggesting import suggest
from registry.catalogue import catalogue
from registry.downloads.item import Item, State
from registry.items import GGUF, Offer
from registry.library import LibraryModel
from registry.machine import facts
from registry.probe import from_json
from registry.sources.source import RemoteFile, Repository

MACHINES = Path(__file__).parents[2] / "registry" / "machines"


def repository(id: str, licence: str = "apache-2.0", tags: tuple[str, ...] = ()) -> Repository:
    return Repository("hub", id, licence=licence, tags=tags)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("unsloth/Qwen3-30B-A3B-GGUF", 30e9),
        ("bartowski/SmolLM2-360M-Instruct-GGUF", 360e6),
        ("x/Llama-3.2-1B-GGUF", 1e9),
        ("x/phi_3_3.8b_q4", 3.8e9),
        ("unsloth/gpt-oss-20b-GGUF", 20e9),
        ("x/gemma-3n-E4B-it", None),
        ("70B-people/Mystery-GGUF", None),
    ],
)
def test_a_name_tells_how_many_weights_there_are(name: str, weights: float | None) -> None:
    assert weights_of(repository(name)) == weights


def test_filters_hold_against_a_model_only_what_is_known_of_it() -> None:
    small, large, nameless = (repository(f"x/{name}") for name in ("Tiny-1B", "Huge-70B", "Mystery"))
    fitting = Filter(fits=True, room=8 << 30)
    assert [fitting.passes(each) for each in (small, large, nameless)] == [True, False, True]
    assert Filter(fits=True, room=0).passes(large), "where the room is not known, nothing is left out"
    assert fits_likely(large, 0) is None
    assert [Filter(size="large").passes(each) for each in (small, large, nameless)] == [False, True, False]
    assert not Filter(licence="open").passes(repository("x/Tiny-1B", "llama3.1"))
    assert Filter(licence="other").passes(repository("x/Tiny-1B", ""))


def test_what_sees_is_known_by_its_tags_or_its_name() -> None:
    assert sees(repository("x/Tiny-1B", tags=("image-text-to-text",)))
    assert sees(repository("ggml-org/Qwen2.5-VL-7B-Instruct-GGUF"))
    assert sees(repository("ggml-org/SmolVLM2-500M"))
    assert not sees(repository("x/Revolver-7B"))


def test_figures_are_as_exact_as_they_are_worth() -> None:
    assert of_size(1_200_000_000, 2_500_000_000) == "1.2 / 2.5 GB"
    assert of_size(32_000_000, 2_500_000_000) == "32.0 MB / 2.5 GB"
    assert [left(seconds) for seconds in (4, 70, 600, 7500)] == [
        "less than a minute left",
        "1 minute left",
        "10 minutes left",
        "2 h 5 min left",
    ]
    assert [count(number) for number in (7, 1234, 98_765, 4_321_000)] == ["7", "1.2 k", "99 k", "4.3 M"]
    today = date(2026, 5, 31)
    told = [day(text, today) for text in ("2026-05-31", "2026-05-30", "2026-05-21", "2025-01-01", "")]
    assert told == ["today", "yesterday", "10 days ago", "2025-01-01", ""]


def test_a_fit_is_told_in_words_with_its_speed() -> None:
    disk = Fitness("disk", "It is larger than the memory.", 2.04, 41.0)
    assert words(disk) == "streams from disk, about 2 tokens/s"
    assert explained(disk) == (
        "Streams from disk, about 2 tokens/s; the first word of an answer comes after about 41 s. "
        "It is larger than the memory."
    )
    assert words(Fitness("cannot", "why", 3.0)) == "cannot run here"


def choice(problem: str = "") -> Choice:
    file = RemoteFile("hub", "labs/Tiny-GGUF", "0" * 40, "Tiny-Q4_K_M.gguf", 1000, "ab" * 32)
    return choice_of(Offer("Q4_K_M", GGUF, (file,), problem=problem), "mit")


def item(state: State) -> Item:
    wanted = choice().wanted
    assert wanted is not None
    return Item(wanted.id, wanted.name, state, "", 1000, 10, (), wanted, 0.0, None, 0.0, None)


def test_the_one_button_does_what_leads_on() -> None:
    fresh = choice()
    assert fresh.act == "download"
    assert [replace(fresh, item=item(state)).act for state in ("downloading", "waiting", "paused", "elsewhere")] == [
        "pause",
        "pause",
        "resume",
        "wait",
    ]
    kept = replace(fresh, item=item("done"), kept=LibraryModel(fresh.name, Path("x/y.gguf"), 1000, Path("x")))
    assert fresh.name == "labs/Tiny-GGUF/Tiny-Q4_K_M"
    assert kept.act == "load"
    assert replace(kept, loaded=True).act == "chat"
    assert not kept.partial
    assert replace(fresh, item=item("done")).act == "download", "it was removed since"
    broken = choice("Part 2 is missing.")
    assert (broken.act, broken.fitness) == ("none", Fitness("cannot", "Part 2 is missing."))


def test_the_day_of_use_is_kept_and_damage_to_the_record_forgotten(folder: Path) -> None:
    used = LastUsed(folder / "settings" / "last-used.json")
    assert used.days() == {}
    used.used(Path("/models/水車.gguf"), date(2026, 5, 30))
    used.used(Path("/models/other.gguf"), date(2026, 5, 31))
    assert LastUsed(folder / "settings" / "last-used.json").days() == {
        str(Path("/models/水車.gguf")): "2026-05-30",
        str(Path("/models/other.gguf")): "2026-05-31",
    }
    (folder / "settings" / "last-used.json").write_bytes(b"[")
    assert used.days() == {}


@pytest.mark.parametrize("name", ["laptop-16gb-intel", "laptop-8gb-no-gpu", "desktop-24gb-nvidia", "old-pc-4gb"])
def test_all_of_the_catalogue_is_suggested_once_the_best_first(name: str) -> None:
    machine = facts(from_json((MACHINES / f"{name}.json").read_text(encoding="utf-8")))
    found = suggest(catalogue(), machine)
    assert sorted(each.name for each in found) == sorted(entry.name for entry in catalogue())
    assert [each.place for each in found].count("best") == 1 and found[0].place == "best"
    assert found[0].why and found[0].fitness.runs
    rest = [each.fitness.kind for each in found if each.place == "more"]
    order = [("disk", "cannot").index(kind) if kind in ("disk", "cannot") else -1 for kind in rest]
    assert order == sorted(order), "what fits comes before what streams, and that before what cannot run"
