"""Fits, against what loading takes, and of models that are elsewhere against the same model here."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine import Budgets, Engine, Settings
from engine.decode.cache import KVCache
from engine.errors import SettingsError
from engine.formats import open_index
from engine.formats.gguf_header import read_header
from engine.info import model_info
from engine.kernels.native import NativeOps
from engine.memory.meter import Meter
from engine.memory.needs import Needs
from engine.memory.store import WeightStore
from engine.models import build
from engine.planning import make_plan
from engine.types import Plan
from engine.vision.eyes import find_eyes
from registry.fit import Fit, Fitter, Label, fit, speed
from registry.fitting import Here, Local, Remote, fit_of
from registry.headers import Headers
from registry.items import Offer
from registry.probe.tree import Gpu
from registry.sources.hub import Hub
from tests.engine.formats.checkpoints import write_checkpoint
from tests.engine.models.families import FAMILIES
from tests.engine.models.test_sweep import TABLE, Swept
from tests.engine.sights import publish as publish_sight
from tests.engine.sights import publish_checkpoint
from tests.hub_server import HubServer
from tests.registry.remote import PLENTY, There, fetched, hub_server, machine, publish
from tests.tiny_chat import write_tiny_chat

MB = 1_000_000
BUDGETS = Budgets(context=50, threads=2)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server(monkeypatch) as server:
        yield server


def remote(tmp_path: Path, offer: Offer, budgets: Budgets = BUDGETS, free: int = PLENTY) -> Fit:
    headers = Headers(tmp_path / "cache", first=4096)
    return fit_of(Remote(Hub.from_environment(), offer, headers), budgets, There(free))


def local(path: Path, budgets: Budgets = BUDGETS, free: int = PLENTY) -> Fit:
    return fit_of(Local(path), budgets, There(free))


def plan_of(found: Fit) -> Plan:
    assert found.plan is not None
    return found.plan


def parts(plan: Plan) -> int:
    return plan.weights + plan.experts + plan.arena + plan.kv + plan.activations + plan.tables + plan.vision


# The bytes.


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_elsewhere_fits_as_the_same_file_here_and_takes_what_loading_takes(
    name: str, hub: HubServer, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path, family = folder / "tiny-Q8_0.gguf", FAMILIES[name]
    family.write(path, family.make(**TABLE.get(name, Swept()).changes), "Q8_0")
    (offer,) = publish(hub, folder)
    found = remote(tmp_path, offer)
    assert found == local(path) and found.label is Label.MEMORY

    header = read_header(path).nbytes
    assert header <= fetched(hub, path.name) <= max(4096, 2 * header)

    index, meter = open_index(path), Meter()
    with closing(NativeOps(1)) as ops, closing(WeightStore(index, ops, meter)) as store:
        model = build(index.metadata, store, context=50)
        with closing(KVCache(ops, model.caches, 50, "f16", meter)):
            assert (plan_of(found).weights, plan_of(found).kv) == (meter.use().weights, meter.use().kv)

    streamed = replace(BUDGETS, chunk=8, ram=parts(plan_of(found)) * 2 // 3)
    assert remote(tmp_path, offer, streamed) == local(path, streamed)


def test_the_starter_elsewhere_takes_what_the_engine_holds(starter: Path, hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / starter.name).symlink_to(starter)
    (offer,) = publish(hub, folder)
    budgets = Budgets(context=256, threads=2, chunk=32)
    found = remote(tmp_path, offer, budgets)
    assert found == local(starter, budgets)
    assert fetched(hub, starter.name) <= 2 * read_header(starter).nbytes < starter.stat().st_size // 10
    with Engine.load(starter, budgets) as engine:
        list(engine.generate("Once upon a time", Settings(max_tokens=4, temperature=0)))
        use, plan = engine.memory, plan_of(found)
        assert use.weights + use.kv + use.tables == pytest.approx(plan.weights + plan.kv + plan.tables, rel=0.03)
        assert use.activations <= plan.activations


def test_a_split_model_elsewhere_fits_as_here(hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    family = FAMILIES["qwen3"]
    family.write(folder / "tiny.gguf", family.make(), "Q8_0", shard=8)
    parts = sorted(folder.iterdir())
    assert len(parts) > 2
    (offer,) = publish(hub, folder)
    assert remote(tmp_path, offer) == local(parts[0]) and remote(tmp_path, offer).runs


@pytest.mark.parametrize("name", ["qwen3vl", "gemma3"])
def test_a_tower_counts_elsewhere_as_here(name: str, hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    publish_sight(folder, name)
    (offer,) = publish(hub, folder)
    found = remote(tmp_path, offer)
    assert found == local(folder / "tiny.gguf") and plan_of(found).vision > 0
    blind = remote(tmp_path, offer.with_tower(None))
    assert plan_of(blind).vision == 0 and plan_of(blind).weights == plan_of(found).weights


def test_a_checkpoint_elsewhere_fits_as_here(hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_checkpoint(folder, FAMILIES["qwen3moe"].make(vocab_size=300, eos_token_id=2, bos_token_id=None), shard="50KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    (offer,) = publish(hub, folder)
    assert remote(tmp_path, offer) == local(folder) and remote(tmp_path, offer).runs
    for part in folder.glob("*.safetensors"):
        assert fetched(hub, part.name) < part.stat().st_size


@pytest.mark.parametrize("name", ["qwen35", "gemma4"])
def test_a_checkpoint_that_sees_fits_elsewhere_as_here(name: str, hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    publish_checkpoint(folder, name)
    (offer,) = publish(hub, folder)
    found = remote(tmp_path, offer)
    assert found == local(folder) and plan_of(found).vision > 0


# The labels.


def test_labels_follow_the_memory(starter: Path) -> None:
    whole = local(starter, Budgets(context=512))
    assert (whole.label, whole.why, whole.words) == (Label.MEMORY, "", "fits memory")
    assert whole.budgets == Budgets(context=512)
    plan = plan_of(whole)
    assert whole.tok_s == plan.tok_s and whole.first_token_s == pytest.approx(512 / plan.prefill_tok_s)  # type: ignore[operator]

    some = local(starter, Budgets(context=512, ram=60 * MB))
    assert some.label is Label.DISK and plan_of(some).streams and some.runs
    assert re.fullmatch(r"streams from disk, about [\d.]+ tokens/s", some.words)
    assert re.match(
        r"Its weights take 9\d\.\d MB and all else [\d.]+ MB, but it may have 60\.0 MB of memory\.", some.why
    )

    none = local(starter, Budgets(context=512, ram=5 * MB))
    assert none.label is Label.CANNOT and none.plan is None and not none.runs
    assert none.words == f"cannot run here: {none.why}" and "needs at least" in none.why


def test_labels_can_be_told_apart_without_colour_and_without_shape() -> None:
    assert len({label.words for label in Label}) == len({label.shape for label in Label}) == len(Label) == 4
    assert [label.role for label in Label] == ["ok", "ok", "warn", "bad"]


def test_what_makes_it_fit_is_recommended(starter: Path) -> None:
    index = open_index(starter)
    needs = Needs(index, Budgets(), None, 2)
    room = needs.resident(4096, 16) - MB
    found = fit(index, None, Budgets(ram=room), machine())
    assert found.label is Label.DISK
    best = found.budgets
    assert best.context and best.context >= 2048 and f"With a context of {best.context:,} tokens" in found.why
    assert fit(index, None, best, machine()).label is Label.MEMORY
    # A context that was asked for is not given up, and what does not help is not recommended.
    room = needs.streamed(4096, 16) + 8 * MB
    asked = fit(index, None, Budgets(ram=room, context=4096, kv="f16"), machine())
    assert asked.label is Label.DISK and asked.budgets.context == 4096
    tight = Budgets(ram=needs.streamed(512, 1) + 2 * MB, context=512)
    found = fit(index, None, tight, machine())
    assert found.label is Label.DISK and found.budgets == tight and "With a context" not in found.why


def test_a_context_that_the_model_was_not_made_for_cannot_run(starter: Path) -> None:
    found = local(starter, Budgets(context=9000))
    assert found.label is Label.CANNOT and "at most 8192" in found.why
    with pytest.raises(SettingsError):
        local(starter, Budgets(context=-1))


def test_the_model_that_is_loaded_now_counts_as_free(starter: Path) -> None:
    index, budgets = open_index(starter), Budgets(context=512)
    tight = machine(free=60 * MB)
    assert fit(index, None, budgets, tight).label is Label.DISK
    assert fit(index, None, budgets, tight, unloading=400 * MB).label is Label.MEMORY


def card(free: int, *, usable: bool = True) -> Gpu:
    why = "" if usable else "There are no kernels for it yet."
    return Gpu("nvidia", "Card", "sm_89", 24 << 30, free, False, "driver", usable, why)


def test_only_a_card_that_is_usable_is_fitted_to(starter: Path) -> None:
    index, budgets = open_index(starter), Budgets(context=512)
    needs = Needs(index, budgets, None, 2).resident(512, 512)
    for cards, label in (
        ([card(needs)], Label.GPU),
        ([card(needs - 1)], Label.MEMORY),
        ([card(needs, usable=False)], Label.MEMORY),
        ([card(needs // 2), card(needs // 2 + 1)], Label.MEMORY),
        ([card(1), card(needs)], Label.GPU),
    ):
        assert fit(index, None, budgets, machine(), gpus=cards).label is label
    granted = replace(budgets, vram=needs - 1)
    assert fit(index, None, granted, machine(), gpus=[card(needs)]).label is Label.MEMORY
    # Without a card that can be used, memory of one cannot be granted.
    assert "no card" in fit(index, None, replace(budgets, vram=needs), machine()).why
    # The memory of the machine may be too little, where the card's is enough.
    alone = fit(index, None, budgets, machine(free=5 * MB), gpus=[card(needs)])
    assert alone.label is Label.GPU and alone.plan is None and alone.runs


def test_where_the_drive_is_not_known_no_speed_is_foretold(starter: Path) -> None:
    found = fit(open_index(starter), None, Budgets(context=512, ram=60 * MB), machine(drive=None))
    assert (found.words, found.tok_s, found.first_token_s) == ("streams from disk", None, None)


def test_what_cannot_be_opened_cannot_run(tmp_path: Path, starter: Path) -> None:
    (tmp_path / "page.gguf").write_bytes(b"<html>not found</html>")
    found = local(tmp_path / "page.gguf")
    assert found.label is Label.CANNOT and "web page" in found.why
    data = starter.read_bytes()[: 8 << 20]
    (tmp_path / "cut.gguf").write_bytes(data)
    assert "cut short" in local(tmp_path / "cut.gguf").why
    (tmp_path / "other.gguf").write_bytes(data.replace(b"llama", b"lmaal"))
    assert local(tmp_path / "other.gguf").label is Label.CANNOT


def test_an_offer_that_cannot_be_loaded_is_not_fetched(hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    family = FAMILIES["qwen3"]
    family.write(folder / "tiny.gguf", family.make(), "Q8_0", shard=8)
    max(folder.iterdir()).unlink()
    (offer,) = publish(hub, folder)
    found = remote(tmp_path, offer)
    assert found.label is Label.CANNOT and "is missing" in found.why
    assert all(not hub.fetched(f"org/tiny/{path.name}") for path in folder.iterdir())


# The machine here.


def test_this_machine_is_measured_only_where_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.memory.speeds.SECONDS", 0.001)
    chat = write_tiny_chat(tmp_path / "chat.gguf")
    kept = tmp_path / "measurements.json"
    unmeasured = fit_of(Local(chat), Budgets(threads=2), Here(tmp_path / "none yet", kept, measure=False))
    assert unmeasured.label is Label.MEMORY and unmeasured.tok_s is None and not kept.exists()
    measured = fit_of(Local(chat), Budgets(threads=2), Here(tmp_path / "none yet", kept))
    assert measured.tok_s and measured.first_token_s and kept.exists()
    again = fit_of(Local(chat), Budgets(threads=2), Here(tmp_path / "none yet", kept, measure=False))
    assert again.tok_s == measured.tok_s
    made, _ = make_plan(
        open_index(chat),
        model_info(open_index(chat)),
        Budgets(threads=2),
        find_eyes(open_index(chat), None),
        machine(),
    )
    assert plan_of(measured).weights == made.weights


# The time that it takes.


def test_moving_a_slider_is_answered_at_once(starter: Path) -> None:
    index = open_index(starter)
    fitter = Fitter(index, None, machine())
    for ram in (None, 60 * MB):
        fitter.fit(Budgets(ram=ram))
    asked = [
        Budgets(ram=ram * MB, context=context) for ram in range(40, 400, 40) for context in (512, 1000, 3000, 8192)
    ]
    started = time.process_time()
    found = [fitter.fit(budgets) for budgets in asked]
    each = (time.process_time() - started) / len(asked)
    assert {one.label for one in found} >= {Label.MEMORY, Label.DISK, Label.CANNOT}
    assert each < 0.02, each
    assert found == [fit(index, None, budgets, machine()) for budgets in asked]


@pytest.mark.parametrize(
    ("tok_s", "words"), [(0.02, "one token in 50 s"), (3.21, "3.2 tokens/s"), (88.8, "89 tokens/s")]
)
def test_speeds_are_told_as_exactly_as_they_are_known(tok_s: float, words: str) -> None:
    assert speed(tok_s) == words
