"""What is recommended for machines that were recorded: a table to read, each line judged as somebody who knows would.

Two columns: as it is today, with everything computed by the processor, and as it would be if the cards computed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.errors import SettingsError
from registry.catalogue import Entry, catalogue
from registry.choice import ACCEPTABLE, OFFERED, PLEASANT, Recommendation, fits, recommend
from registry.machine import MachineFacts, facts
from registry.probe import from_json
from registry.rough import bits

MACHINES = Path(__file__).parent / "machines"
ENTRIES = catalogue()


class Line(NamedTuple):
    machine: str
    today: str
    with_card: str
    """"" where there is no card that could compute."""
    judged: str


TABLE = [
    Line(
        "old-pc-4gb",
        "qwen3.5-0.8b Q6_K: fits memory, about 10 tok/s",
        "",
        "No AVX2, 4 GB with 1.6 GB free: anything larger would crawl, and this one still makes sense of a text.",
    ),
    Line(
        "container-4gb",
        "qwen3.5-2b Q4_K_M: fits memory, about 10 tok/s",
        "",
        "The container's 4 GB and two processors count, not the host's 64 GB and 32 cores.",
    ),
    Line(
        "laptop-8gb-no-gpu",
        "qwen3.5-2b Q4_K_M: fits memory, about 10 tok/s",
        "",
        "Two old cores: 4 billion weights would fit, but come at half the pleasant speed.",
    ),
    Line(
        "laptop-16gb-intel",
        "gemma-4-e4b Q4_K_M: fits memory, about 8.1 tok/s",
        "",
        "Four cores: the best of the small ones that is still pleasant; 9 billion weights come second, at 5 tok/s.",
    ),
    Line(
        "apple-m2-16gb",
        "gemma-4-e4b Q4_K_M: fits memory, about 8.1 tok/s",
        "gemma-4-e4b Q4_K_M: fits the GPU, about 24 tok/s",
        "16 GB shared with everything else, half of it in use: 9 billion weights with pictures would not leave enough.",
    ),
    Line(
        "desktop-8gb-nvidia",
        "qwen3.5-9b Q4_K_M: fits memory, about 7.2 tok/s",
        "gpt-oss-20b MXFP4: fits GPU and memory together, about 44 tok/s",
        "16 GB: 9 billion weights, a little slow; with the card experts lie in memory and all else in 8 GB of VRAM.",
    ),
    Line(
        "laptop-amd-apu",
        "gemma-4-26b-a4b UD-Q4_K_M: fits memory, about 18 tok/s",
        "gemma-4-26b-a4b UD-Q4_K_M: fits memory, about 18 tok/s",
        "32 GB and no fast card: a mixture with few active weights. The built-in card is no faster than the memory.",
    ),
    Line(
        "desktop-amd-16gb",
        "gemma-4-26b-a4b UD-Q4_K_M: fits memory, about 16 tok/s",
        "qwen3.6-35b-a3b UD-Q4_K_M: fits GPU and memory together, about 102 tok/s",
        "As above; 35 billion weights would take 24 of 32 GB, which the card's 16 GB make room for.",
    ),
    Line(
        "desktop-intel-arc",
        "gemma-4-26b-a4b UD-Q4_K_M: fits memory, about 14 tok/s",
        "qwen3.6-35b-a3b UD-Q4_K_M: fits GPU and memory together, about 95 tok/s",
        "The same machine in other colours.",
    ),
    Line(
        "desktop-nvidia-broken",
        "gemma-4-26b-a4b UD-Q4_K_M: fits memory, about 16 tok/s",
        "",
        "The card's driver fails, which leaves 32 GB of memory: no refusal, the same mixture.",
    ),
    Line(
        "desktop-24gb-nvidia",
        "qwen3.6-35b-a3b UD-Q4_K_M: fits memory, about 24 tok/s",
        "qwen3.6-27b Q4_K_M: fits the GPU, about 44 tok/s",
        "64 GB: the better mixture fits with ease. On 24 GB of VRAM the dense 27 billion, as most would say.",
    ),
    Line(
        "apple-m2-max-96gb",
        "qwen3.6-35b-a3b UD-Q4_K_M: fits memory, about 24 tok/s",
        "qwen3.6-35b-a3b Q8_0: fits the GPU, about 89 tok/s",
        "120 billion weights just fit, but fill the machine; the card affords the finer file.",
    ),
    Line(
        "nvidia-unified-128gb",
        "qwen3.6-35b-a3b UD-Q4_K_M: fits memory, about 30 tok/s",
        "qwen3.5-122b-a10b UD-Q4_K_XL: fits the GPU, about 36 tok/s",
        "Ten cores are too slow for 10 billion active weights that think first; the card is not.",
    ),
    Line(
        "workstation-two-gpus",
        "qwen3.5-122b-a10b UD-Q4_K_XL: fits memory, about 16 tok/s",
        "qwen3.5-122b-a10b UD-Q4_K_XL: fits GPU and memory together, about 45 tok/s",
        "128 GB and 32 cores: worth the wait today; with 36 GB of VRAM quick.",
    ),
    Line(
        "server-128gb-no-gpu",
        "qwen3.5-122b-a10b UD-Q4_K_XL: fits memory, about 37 tok/s",
        "",
        "Sixteen channels of memory, no card needed.",
    ),
]


def of(machine: str, *, cards_compute: bool = False) -> MachineFacts:
    probe = from_json((MACHINES / f"{machine}.json").read_text(encoding="utf-8"))
    return facts(probe, cards_compute=cards_compute)


def told(recommendation: Recommendation) -> str:
    return f"{recommendation.entry.id} {recommendation.quantisation}: {recommendation.choice.label}"


def entry(name: str) -> Entry:
    return next(each for each in ENTRIES if each.id == name)


def test_every_recorded_machine_is_in_the_table() -> None:
    assert sorted(line.machine for line in TABLE) == sorted(path.stem for path in MACHINES.glob("*.json"))
    assert len(TABLE) >= 12


@pytest.mark.parametrize("line", TABLE, ids=[line.machine for line in TABLE])
def test_what_an_expert_would_say(line: Line) -> None:
    assert told(recommend(ENTRIES, of(line.machine))) == line.today
    machine = of(line.machine, cards_compute=True)
    assert bool(machine.vram_usable) == bool(line.with_card)
    if line.with_card:
        assert told(recommend(ENTRIES, machine)) == line.with_card


@pytest.mark.parametrize("cards_compute", [False, True])
@pytest.mark.parametrize("name", [line.machine for line in TABLE])
def test_the_rules_hold_on_every_machine(name: str, cards_compute: bool) -> None:
    machine = of(name, cards_compute=cards_compute)
    for vision in (None, True, False):
        found = recommend(ENTRIES, machine, vision=vision)
        best = found.choice
        assert best.where != "disk" and best.pace >= ACCEPTABLE
        assert best.entry.sees or not vision
        assert best.sees == (best.entry.sees and vision is not False)
        assert found.why.endswith(".") and found.why.count(". ") == 0 and best.entry.name in found.why
        assert machine.disk_free is None or best.download <= machine.disk_free - 5_000_000_000
        ids = [best.entry.id, *(each.entry.id for each in found.runners_up)]
        assert len(set(ids)) == len(ids)
        for each in found.runners_up:
            assert each.entry.sees or not vision
            if each.where == "disk":
                assert each.entry.rank > best.entry.rank and each.tok_s >= OFFERED
                assert each.label.startswith("streams from disk, about ")
        for each in (best, *found.runners_up):
            assert each.entry.shape.parameters >= 10e9 or bits(each.quantisation) >= 4


def test_more_memory_never_makes_the_choice_worse() -> None:
    machine, last = of("server-128gb-no-gpu"), -1
    for gigabytes in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512):
        total = gigabytes << 30
        grown = replace(machine, ram_total=total, ram_free=total * 9 // 10, reserve=total // 10)
        rank = recommend(ENTRIES, grown).entry.rank
        assert rank >= last
        last = rank
    assert last >= 85


def test_larger_than_memory_is_offered_but_not_taken_first() -> None:
    found = recommend(ENTRIES, of("desktop-24gb-nvidia"))
    (streams,) = [each for each in found.runners_up if each.where == "disk"]
    assert streams.entry.id == "qwen3.5-122b-a10b" and streams.tok_s < found.choice.tok_s


def test_what_only_streams_is_taken_where_nothing_else_is_there() -> None:
    large = [each for each in ENTRIES if each.shape.parameters > 1e11]
    found = recommend(large, of("laptop-16gb-intel"))
    assert found.choice.where == "disk" and "streams from disk" in found.choice.label
    assert "No model fits the memory" in found.why


def test_a_tiny_machine_gets_a_tiny_model() -> None:
    tiny = replace(of("old-pc-4gb"), ram_total=1 << 30, ram_free=1 << 29, reserve=1 << 28)
    assert recommend(ENTRIES, tiny).entry.id == "smollm2-135m"


def test_a_machine_that_is_slow_for_all_gets_the_quickest() -> None:
    slow = replace(of("old-pc-4gb"), memory_bandwidth=2e8)
    found = recommend(ENTRIES, slow)
    assert found.entry.id == "smollm2-135m" and found.choice.pace < ACCEPTABLE
    assert "quickest" in found.why


def test_a_full_disk_leaves_the_small_ones_and_says_so_where_none_is_left() -> None:
    machine = of("desktop-24gb-nvidia")
    assert recommend(ENTRIES, replace(machine, disk_free=8_000_000_000)).choice.download <= 3_000_000_000
    with pytest.raises(SettingsError, match=r"too little room for any model.* about 98\.4 MB"):
        recommend(ENTRIES, replace(machine, disk_free=5_000_000_000))


def test_no_memory_at_all_is_said_in_a_sentence() -> None:
    with pytest.raises(SettingsError, match="too little for any, even from disk"):
        recommend(ENTRIES, replace(of("old-pc-4gb"), ram_total=0, ram_free=0, reserve=0))


def test_a_list_without_pictures_is_refused_where_they_are_asked_for() -> None:
    with pytest.raises(SettingsError, match="none that sees pictures"):
        recommend([entry("qwen3-4b")], of("laptop-8gb-no-gpu"), vision=True)


def test_a_mixture_is_preferred_on_a_processor_to_a_dense_model_that_is_as_good() -> None:
    mixture, dense = entry("qwen3-30b-a3b"), replace(entry("qwen3-32b"), rank=entry("qwen3-30b-a3b").rank, thinks=False)
    assert recommend([dense, mixture], of("desktop-24gb-nvidia")).entry is mixture


def test_a_model_that_thinks_first_has_to_be_quicker() -> None:
    quick = entry("qwen3-4b")
    thinks = replace(quick, id="thinks", thinks=True)
    machine = replace(of("laptop-16gb-intel"), memory_bandwidth=24e9)
    assert recommend([thinks, quick], machine).entry is quick
    told = fits(thinks, "Q4_K_M", machine, sees=False)
    assert told is not None and told.pace == told.tok_s / 2 < PLEASANT


def test_what_is_measured_counts_before_what_is_typical() -> None:
    probe = from_json((MACHINES / "laptop-8gb-no-gpu.json").read_text(encoding="utf-8"))
    assert facts(probe, memory=9e9).memory_bandwidth == 9e9
    assert facts(probe).disk_bandwidth == probe.storage.read_rate
    unmeasured = replace(probe, storage=replace(probe.storage, read_rate=None, rotating=True))
    assert facts(unmeasured).disk_bandwidth == 150e6


def test_cards_do_not_count_before_there_are_kernels_for_them() -> None:
    for line in TABLE:
        probe = from_json((MACHINES / f"{line.machine}.json").read_text(encoding="utf-8"))
        assert facts(probe).vram_usable == 0


def test_two_cards_count_together_and_the_built_in_one_beside_a_better_one_does_not() -> None:
    two = of("workstation-two-gpus", cards_compute=True)
    assert two.vram_usable == 25_297_354_752 + 11_843_665_920
    assert 0.7 * 360e9 < two.vram_bandwidth < 0.7 * 936e9
    built_in = of("desktop-24gb-nvidia", cards_compute=True)
    assert built_in.vram_usable < 26e9 and not built_in.shared


def test_the_speed_on_this_kind_of_machine_is_about_what_was_measured() -> None:
    """A Qwen3 of 490 M weights in Q8_0 was decoded at 25 tok/s by another engine on two Zen 3 cores that read 17.3 GB/s
    (523 MB a token: at most 33)."""
    two_cores = replace(of("container-4gb"), memory_bandwidth=17.3e9)
    told = fits(entry("qwen3-0.6b"), "Q8_0", two_cores, sees=False)
    assert told is not None and 20 < told.tok_s < 33
