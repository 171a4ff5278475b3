"""Two devices as one: the answer of either alone, whatever lies where, and nothing but activations crosses."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from engine import Budgets, Engine, Event, Image, Message, PrefillProgress, Settings
from engine.decode.cache import KVCache
from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.decode.prompt import Prompt
from engine.errors import NumericsError, SettingsError
from engine.formats import open_index
from engine.kernels.native import NativeOps
from engine.kernels.ops import AttentionSpec, CacheSpec, Ops, Stack, Weight
from engine.kernels.plain import PlainOps
from engine.kernels.sides import SplitCache, Traffic
from engine.kernels.split import SplitOps, routed_experts
from engine.kernels.state import StateSpec
from engine.memory.meter import Meter
from engine.types import Fingerprint
from tests.engine.kernels.cases import same_bits
from tests.engine.models.families import FAMILIES
from tests.tiny import CONTEXT, load_model
from tests.tiny_chat import write_tiny_chat
from tests.tiny_seeing import write_seeing

TOKENS = [int(token) for token in np.random.default_rng(8).integers(0, 96, 11)]
CHUNKS = (1, 3, 7)
WIDTH, EXPERTS, VOCABULARY, LAYERS = 64, 8, 96, 2
"""Of the tiny mixtures."""

PAIRS: dict[str, tuple[Callable[[], Ops], Callable[[], Ops]]] = {
    "plain and native": (PlainOps, partial(NativeOps, 2)),
    "native and plain": (partial(NativeOps, 2), PlainOps),
    "two instruction sets": (partial(NativeOps, 1, "portable"), partial(NativeOps, 2)),
}
SLOW = {"plain and native": 1, "native and plain": 0}
"""Pairs that leave every other placement to each other."""
OnHost = Callable[[str], bool]


def layer_of(name: str) -> int | None:
    found = re.match(r"blk\.(\d+)\.", name)
    return int(found[1]) if found else None


def at_random(seed: int) -> OnHost:
    """Each weight anywhere, but the matrices of a mixture's experts together."""
    return lambda name: random.Random(f"{seed} {layer_of(name) if routed_experts(name) else name}").random() < 0.5


def layers_at_random(seed: int) -> OnHost:
    return lambda name: random.Random(f"{seed} {layer_of(name)}").random() < 0.5


PLACEMENTS: dict[str, OnHost] = {
    "experts": routed_experts,
    "experts and routers": lambda name: "_exps." in name or "ffn_gate_inp." in name,
    "feed-forward": lambda name: ".ffn_" in name,
    "attention": lambda name: ".attn_" in name or ".ssm_" in name,
    "first layer": lambda name: layer_of(name) == 0,
    "tables": lambda name: layer_of(name) is None,
    "layers at random": layers_at_random(4),
    **{f"weights at random {seed}": at_random(seed) for seed in range(4)},
}


def forward_of(path: Path, ops: Ops, kv: str = "f16") -> Forward:
    model = load_model(path, ops)
    return Forward(model, ops, KVCache(ops, model.caches, CONTEXT, kv, Meter()))


def answer(path: Path, ops: Ops, chunk: int) -> Fingerprint:
    return fingerprint(forward_of(path, ops), TOKENS, 3, chunk=chunk)


def written(folder: Path, name: str) -> Path:
    family = FAMILIES[name]
    path = folder / "tiny.gguf"
    family.write(path, family.make(), "TQ2_0" if name.startswith("bitnet") else "Q8_0")
    return path


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_architecture_answers_as_on_one_side_whatever_lies_where(name: str, pair: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    with closing(NativeOps(1)) as alone:
        expected = answer(path, alone, 5)
    device, host = PAIRS[pair]
    for number, (placement, on_host) in enumerate(PLACEMENTS.items()):
        if number % 2 == SLOW.get(pair):
            continue
        with closing(SplitOps(device(), host(), on_host)) as ops:
            assert answer(path, ops, CHUNKS[number % 3]) == expected, placement


def test_every_chunk_size_gives_the_same_answer_and_the_same_traffic(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen3moe")
    made = set()
    for chunk in (*CHUNKS, len(TOKENS)):
        with closing(SplitOps(PlainOps(), NativeOps(2), routed_experts)) as ops:
            made.add((answer(path, ops, chunk), ops.traffic))
    assert len(made) == 1


@dataclass(frozen=True)
class Crossing:
    """What a row costs: float32 values to the host and back."""

    to_host: int
    to_device: int


MIXTURE = Crossing(LAYERS * (WIDTH + EXPERTS), LAYERS * WIDTH)
CROSSINGS = {
    ("qwen3moe", "experts"): MIXTURE,
    ("mixtral", "experts"): MIXTURE,
    ("gpt-oss", "experts"): MIXTURE,
    ("gemma4 experts", "experts"): MIXTURE,
    ("qwen35moe", "experts"): Crossing(2 * MIXTURE.to_host, 2 * MIXTURE.to_device),  # of four layers
    ("deepseek v2", "experts"): MIXTURE,
    ("qwen3moe", "experts and routers"): Crossing(LAYERS * WIDTH, LAYERS * WIDTH),
    ("qwen3", "feed-forward"): Crossing(LAYERS * WIDTH, LAYERS * WIDTH),
    ("qwen3", "attention"): Crossing(LAYERS * WIDTH, LAYERS * WIDTH),
    ("qwen35", "first layer"): Crossing(WIDTH, WIDTH),
    ("qwen3", "first layer"): Crossing(WIDTH, WIDTH),
    ("qwen3", "tables"): Crossing(WIDTH, WIDTH),
    ("qwen3", "experts"): Crossing(0, 0),
}


@pytest.mark.parametrize(("name", "placement"), CROSSINGS)
def test_of_each_row_only_activations_cross(name: str, placement: str, tmp_path: Path) -> None:
    path, crossing = written(tmp_path, name), CROSSINGS[name, placement]
    with closing(SplitOps(NativeOps(1), NativeOps(1), PLACEMENTS[placement])) as ops:
        forward = forward_of(path, ops)
        assert ops.traffic == Traffic(0, 0)
        rows = 0
        for tokens in (TOKENS[:7], TOKENS[7:8], TOKENS[8:]):
            forward.logits(forward.advance(tokens))
            rows += len(tokens)
            assert ops.traffic == Traffic(4 * rows * crossing.to_device, 4 * rows * crossing.to_host)


def test_a_prompt_whose_last_logits_alone_are_wanted_brings_one_row_back_from_the_last_layer(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen3")
    with closing(SplitOps(NativeOps(1), NativeOps(1), lambda name: layer_of(name) == LAYERS - 1)) as ops:
        forward = forward_of(path, ops)
        forward.next_logits(forward.advance(TOKENS))
        assert ops.traffic == Traffic(to_device=4 * WIDTH, to_host=4 * len(TOKENS) * WIDTH)


def test_each_weight_is_given_to_one_side_as_it_is() -> None:
    device, host = PlainOps(), NativeOps(1)
    data = np.zeros((2, 4, 64 * 4), np.uint8)
    with closing(SplitOps(device, host, routed_experts)) as ops:
        dense = Weight("blk.0.attn_q.weight", "F32", 4, 64, data[0])
        experts = Stack("blk.0.ffn_up_exps.weight", "F32", 2, 4, 64, data)
        handles = ops.matrix(dense), ops.stack(experts)
    assert [handle.side for handle in handles] == ["device", "host"]
    assert (handles[0].weight, handles[1].weight) == (dense, experts)
    assert type(handles[0].handle) is type(device.matrix(dense))
    assert np.shares_memory(handles[1].handle.weight.data, data)


def test_experts_on_both_sides_are_refused() -> None:
    with closing(SplitOps(PlainOps(), PlainOps(), lambda name: "down" in name)) as ops:
        gate, up, down = (
            ops.stack(Stack(f"blk.0.ffn_{name}_exps.weight", "F32", 2, 8, 8, np.zeros((2, 8, 32), np.uint8)))
            for name in ("gate", "up", "down")
        )
        x = ops.tensor(np.ones((1, 8), np.float32))
        with pytest.raises(AssertionError, match="belong on one side"):
            ops.experts(x, x, gate, up, down)


def test_what_crosses_keeps_its_bits() -> None:
    odd = np.array([[np.nan, -0.0, np.inf, 1e-45, 1 / 3, -3.4e38]], np.float32)
    odd.view(np.uint32)[0, 0] |= 0x1234
    for device, host in PAIRS.values():
        with closing(SplitOps(device(), host(), lambda name: name == "on the host")) as ops:
            tables = [ops.matrix(Weight(name, "F32", 1, 6, odd.view(np.uint8))) for name in ("on the host", "other")]
            there, here = (ops.embed(table, [0]) for table in tables)
            for x, side in ((there, "device"), (here, "host")):
                made = ops._ops[side].host(x.on(side))
                assert made.tobytes() == odd.tobytes()
        assert ops.traffic == Traffic(24, 24)


def test_what_is_wanted_twice_crosses_once_and_two_inputs_meet_where_the_larger_is() -> None:
    values = np.arange(12, dtype=np.float32).reshape(1, 12)
    with closing(SplitOps(PlainOps(), PlainOps(), lambda name: name == "on the host")) as ops:
        here, there = (
            ops.embed(ops.matrix(Weight(name, "F32", 1, width, values[:, :width].copy().view(np.uint8))), [0])
            for name, width in (("on the device", 4), ("on the host", 8))
        )
        for _ in range(2):
            assert ops.host(ops.spliced(here, there, 4)).tolist() == [[0, 0, 1, 1, 2, 3, 2, 4, 5, 3, 6, 7]]
        assert ops.traffic == Traffic(to_device=0, to_host=16)
        ones = ops.vector(np.ones(8, np.float32))
        assert same_bits(ops.host(ops.add(ops.rms_norm(there, ones, 1e-5), there)), ops.host(ops.rms_norm(
            there, ones, 1e-5, residual=there
        )))  # fmt: skip
        assert ops.traffic == Traffic(to_device=0, to_host=16)


def test_a_cache_is_where_its_layers_projections_are(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen35moe")
    with closing(SplitOps(NativeOps(1), NativeOps(1), lambda name: layer_of(name) in (1, 3))) as ops:
        forward = forward_of(path, ops)
        assert {cache.side for cache in forward.cache.layers} == {None}
        promised = [cache.nbytes for cache in forward.cache.layers]
        forward.advance(TOKENS)
        assert [cache.side for cache in forward.cache.layers] == ["device", "host"] * 2
        assert [cache.nbytes for cache in forward.cache.layers] == promised


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_a_cache_says_beforehand_what_it_will_take(kind: str) -> None:
    specs = CacheSpec(2, 64, 32), CacheSpec(1, 96, 64, latent=True), StateSpec(16, 4, 1, 1, 4, 8)
    with closing(NativeOps(1)) as native, closing(SplitOps(native, PlainOps(), routed_experts)) as ops:
        for spec in specs:
            ours, real = ops.cache(spec, 100, kind), native.cache(spec, 100, kind)
            assert (ours.spec, ours.capacity, ours.kind) == (real.spec, real.capacity, real.kind)
            assert ours.nbytes == real.nbytes


def test_a_kind_that_cannot_hold_the_widths_is_refused_at_once() -> None:
    with closing(SplitOps(PlainOps(), PlainOps(), routed_experts)) as ops, pytest.raises(SettingsError):
        ops.cache(CacheSpec(1, 20, 20), 8, "q8_0")


def test_recurrent_states_go_back_on_whichever_side_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, "qwen35moe")
    for on_host in (routed_experts, at_random(3), layers_at_random(4)):
        with closing(NativeOps(1)) as alone, closing(SplitOps(PlainOps(), NativeOps(2), on_host)) as ops:
            logits = []
            for forward in (forward_of(path, alone), forward_of(path, ops)):
                forward.cache.keep_state()  # of nothing yet
                forward.advance(TOKENS[:5])
                forward.cache.keep_state()
                forward.advance(TOKENS[5:9])
                assert forward.begin(Prompt.of([*TOKENS[:5], *TOKENS[8:]])) == 5
                logits.append(forward.next_logits(forward.advance(TOKENS[8:])).copy())
            fresh = forward_of(path, alone)
            logits.append(fresh.next_logits(fresh.advance([*TOKENS[:5], *TOKENS[8:]])).copy())
        assert same_bits(logits[0], logits[1]) and same_bits(logits[0], logits[2])


class Counted:
    """The model's pass, and how often it ran."""

    def __init__(self, path: Path, ops: Ops) -> None:
        self.calls, model = 0, load_model(path, ops)
        caches = [ops.cache(spec, CONTEXT, "f16") for spec in model.caches]

        def forward(tokens, start):
            self.calls += 1
            return model.hidden(ops, tokens, start, caches)

        self.logits = lambda hidden: ops.host(model.logits(ops, hidden)).copy()
        self.run = ops.recorded(forward)


@pytest.mark.parametrize(
    ("on_host", "calls"), [(lambda _: True, 1), (lambda _: False, 1), (routed_experts, len(TOKENS))]
)
def test_a_pass_is_recorded_where_one_side_has_all_weights(on_host: OnHost, calls: int, tmp_path: Path) -> None:
    path = written(tmp_path, "qwen3moe")
    with closing(NativeOps(1)) as alone, closing(SplitOps(NativeOps(1), NativeOps(2), on_host)) as ops:
        ours, theirs = Counted(path, ops), Counted(path, alone)
        for start, token in enumerate(TOKENS):
            made, expected = (each.logits(each.run([token], start)) for each in (ours, theirs))
            assert same_bits(made, expected)
        assert (ours.calls, theirs.calls) == (calls, 1)
        assert (ops.traffic == Traffic(0, 0)) == (calls == 1)


@pytest.mark.parametrize(
    ("tensor", "where"),
    [
        ("blk.0.attn_norm.weight", "layer 0 (the norm before blk.0.attn_q.weight)"),
        ("blk.1.attn_k_norm.weight", "layer 1 (the norm before the attention of blk.1)"),
        (
            "blk.1.ffn_down_exps.weight",
            "layer 1 (blk.1.ffn_gate_exps.weight, blk.1.ffn_up_exps.weight or blk.1.ffn_down_exps.weight)",
        ),
    ],
)
@pytest.mark.parametrize("on_host", [routed_experts, layers_at_random(1), layers_at_random(4), at_random(1)])
def test_a_number_that_is_not_finite_is_named_by_its_layer(
    tensor: str, where: str, on_host: OnHost, tmp_path: Path
) -> None:
    path = written(tmp_path, "qwen3moe")
    info = open_index(path).tensors[tensor]
    data = bytearray(path.read_bytes())
    bad = np.full(info.nbytes // 2, np.nan, np.float16) if "exps" in tensor else np.full(1, np.nan, np.float32)
    data[info.offset : info.offset + bad.nbytes] = bad.tobytes()
    path.write_bytes(data)
    with closing(SplitOps(PlainOps(), NativeOps(1), on_host)) as ops:
        forward = forward_of(path, ops)
        with pytest.raises(NumericsError, match=re.escape(f"{where}, first at position 0:")):
            forward.next_logits(forward.advance(TOKENS))


def test_an_overflow_on_either_side_is_an_error_and_the_next_pass_is_sound() -> None:
    values = np.array([[1e30, 1.0], [1.0, 1.0]], np.float32)
    for on_host in (lambda _: True, lambda _: False):
        with closing(SplitOps(NativeOps(1), NativeOps(1), on_host)) as ops:
            table = ops.matrix(Weight("table", "F32", 2, 2, values.view(np.uint8)))
            cache = ops.cache(CacheSpec(1, 2, 2), 4, "f16")
            huge, sound = (ops.embed(table, [row]) for row in range(2))
            with pytest.raises(NumericsError):
                ops.attention(huge, huge, huge, cache, AttentionSpec(1, 1.0), 0)
            made = ops.attention(sound, sound, sound, cache, AttentionSpec(1, 1.0), 0)
            assert ops.host(made).tolist() == [[1.0, 1.0]]


def test_both_sides_are_counted_and_closed() -> None:
    device, host = NativeOps(1), NativeOps(2)
    ops: Ops = SplitOps(device, host, routed_experts)
    assert (ops.threads, ops.name) == (2, f"{device.name} and {host.name}")
    before = ops.nbytes
    x = ops.tensor(np.ones((1, 64), np.float32))
    assert ops.nbytes == before + 256
    ops.linear(x, ops.matrix(Weight("blk.0.attn_q.weight", "F32", 1, 64, np.zeros((1, 256), np.uint8))))
    assert ops.traffic == Traffic(to_device=256)
    assert ops.nbytes == device.nbytes + host.nbytes >= before + 2 * 256 + 4
    ops.close()
    ops.close()
    assert device._pool is host._pool is None


HELLO = (Message("user", "Hello there"),)
SHORT = Settings(max_tokens=8, temperature=1.2, top_k=0, seed=3)


def conversation(engine: Engine) -> tuple[list[Event], ...]:
    """Two turns without their timings, and how much the second kept."""
    first = list(engine.chat(HELLO, SHORT))[:-1]
    said = "".join(getattr(event, "text", "") for event in first)
    messages = [*HELLO, Message("assistant", said), Message("user", "And now?")]
    return first, list(engine.chat(messages, SHORT))[:-1]


def test_a_chat_over_turns_is_that_of_one_side(tmp_path: Path) -> None:
    path = write_tiny_chat(tmp_path / "tiny.gguf")
    with Engine.load(path, Budgets(threads=1)) as engine:
        expected = conversation(engine), engine.fingerprint("A mill", 5)
    kept = next(event.cached for event in expected[0][1] if isinstance(event, PrefillProgress))
    assert kept > 0
    for on_host in (lambda name: ".ffn_" in name, lambda name: layer_of(name) == 1, at_random(5)):
        ops = SplitOps(PlainOps(), NativeOps(2), on_host)
        with Engine.load(path, Budgets(chunk=7), ops=ops) as engine:
            made = conversation(engine), engine.fingerprint("A mill", 5)
            texts = [[event for event in turn if not isinstance(event, PrefillProgress)] for turn in made[0]]
            assert texts == [[e for e in turn if not isinstance(e, PrefillProgress)] for turn in expected[0]]
            assert next(event.cached for event in made[0][1] if isinstance(event, PrefillProgress)) == kept
            assert made[1] == expected[1]
            assert engine.memory.activations == ops.nbytes > 0
        assert min(ops.traffic.to_device, ops.traffic.to_host) > 0


def look(engine: Engine) -> list[int]:
    """A reply to a picture: what the cache then holds."""
    colours = np.random.default_rng(1).integers(0, 256, (24, 40, 3), np.uint8)
    file = io.BytesIO()
    PillowImage.fromarray(colours).save(file, "PNG")
    message = Message("user", "What?", images=(Image(file.getvalue()),))
    list(engine.chat([message], Settings(temperature=0, max_tokens=6)))
    return list(engine._cache.tokens)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[int]]]:
    """A model that sees, and the rows of a reply on one side."""
    folder = tmp_path_factory.mktemp("seeing")
    write_seeing(folder)
    with Engine.load(folder / "tiny.gguf", Budgets(threads=1, context=256)) as engine:
        yield folder, look(engine)


@pytest.mark.parametrize("part", ["tower", "text", "feed-forwards", "anything"])
def test_pictures_are_seen_whichever_side_the_tower_is_on(seeing: tuple[Path, list[int]], part: str) -> None:
    folder, expected = seeing
    on_host: dict[str, OnHost] = {
        "tower": lambda name: name.startswith(("v.", "mm.")),
        "text": lambda name: not name.startswith(("v.", "mm.")),
        "feed-forwards": lambda name: ".ffn_" in name,
        "anything": at_random(6),
    }
    ops = SplitOps(PlainOps(), NativeOps(2), on_host[part])
    with Engine.load(folder / "tiny.gguf", Budgets(context=256), ops=ops) as engine:
        assert look(engine) == expected
    assert ops.traffic != Traffic(0, 0)


def test_a_state_that_was_never_written_is_left_alone() -> None:
    spec = StateSpec(16, 4, 1, 1, 4, 8)
    with closing(SplitOps(PlainOps(), PlainOps(), routed_experts)) as ops:
        source, target = (ops.cache(spec, 0, "f32") for _ in range(2))
        ops.copy_state(source, target)
        assert isinstance(target, SplitCache) and target.side is None
