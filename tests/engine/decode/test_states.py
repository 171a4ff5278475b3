"""Conversations with a model that has recurrent layers: whatever was kept, the answer is that of an empty cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.cancel import Cancel
from engine.decode.cache import KVCache, cache_bytes
from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.decode.generate import HEADER_TOKENS, generate
from engine.decode.prompt import Prompt
from engine.decode.states import SNAPSHOTS, States, state_bytes
from engine.errors import NumericsError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.kernels.ops import CacheSpec, Ops
from engine.kernels.plain import PlainOps
from engine.kernels.state import StateSpec
from engine.memory.meter import Meter
from engine.text import Tokenizer
from engine.types import Finished, PrefillProgress, Settings
from tests.engine.devices import CONTRACT, DEVICES
from tests.tiny import tiny, write_gguf

CAPACITY = 256
GREEDY = Settings(max_tokens=8, temperature=0)
TOKENS = [int(token) for token in np.random.default_rng(5).integers(32, 127, 200)]
STATE = StateSpec(channels=16, taps=4, n_key_heads=1, n_heads=1, key_dim=4, value_dim=8)
MIXED = (STATE, CacheSpec(1, 8, 8), STATE)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> TensorIndex:
    path = tmp_path_factory.mktemp("hybrid") / "tiny.gguf"
    write_gguf(path, tiny("qwen35", vocab_size=260, max_position_embeddings=CAPACITY, hidden_size=32), "Q8_0")
    return open_index(path)


@pytest.fixture
def hybrid(make_forward: Callable[..., Forward], file: TensorIndex) -> Callable[..., Forward]:
    """Makes the tiny hybrid model with an empty cache."""

    def make(ops: Ops | None = None, **options: Any) -> Forward:
        return make_forward(ops, **({"capacity": CAPACITY, "file": file} | options))

    return make


@pytest.fixture(params=CONTRACT)
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    with closing(DEVICES[request.param]()) as made:
        yield made


def reply(
    forward: Forward, tokenizer: Tokenizer, prompt: Sequence[int], *, chunk: int = 512, cancel_after: int = -1
) -> Finished:
    """Run a reply to its end, or until so many events have come."""
    cancel = Cancel()
    for count, event in enumerate(generate(forward, tokenizer, Prompt.of(prompt), GREEDY, chunk=chunk, cancel=cancel)):
        if isinstance(event, Finished):
            return event
        if count + 1 == cancel_after:
            cancel.set()
    raise AssertionError("no end")


def assert_as_fresh(forward: Forward, fresh: Forward) -> None:
    """What the cache holds gives the logits that an empty one gives for the tokens that it claims."""
    if forward.cache.tokens:
        fresh.advance(forward.cache.tokens)
    logits = [each.next_logits(each.advance([65])).copy() for each in (forward, fresh)]
    assert logits[0].tobytes() == logits[1].tobytes()


def test_a_reply_is_that_of_an_empty_cache_whatever_was_kept(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, ops: Ops
) -> None:
    kept, first = hybrid(ops), TOKENS[:100]
    reply(kept, tokenizer, first)
    written = kept.cache.tokens
    assert len(written) == len(first) + GREEDY.max_tokens - 1
    as_written, otherwise = [*written, *TOKENS[120:140]], [*first, *TOKENS[100:120]]
    for prompt, cached in ((as_written, len(written)), (otherwise, len(first) - HEADER_TOKENS)):
        fresh = hybrid()
        ended, expected = (reply(each, tokenizer, prompt) for each in (kept, fresh))
        assert (ended.usage.cached_tokens, expected.usage.cached_tokens) == (cached, 0)
        assert kept.cache.tokens == fresh.cache.tokens
        assert_as_fresh(kept, hybrid())


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_the_same_prompt_again_begins_at_the_copy_before_its_end(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, chunk: int
) -> None:
    forward = hybrid()
    reply(forward, tokenizer, TOKENS[:90], chunk=chunk)
    written = forward.cache.tokens
    again = reply(forward, tokenizer, TOKENS[:90], chunk=chunk)
    assert again.usage.cached_tokens == 90 - HEADER_TOKENS
    assert forward.cache.tokens == written


@pytest.mark.parametrize("events", [3, 6])
def test_a_cancelled_reply_leaves_what_can_be_gone_on_from(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, ops: Ops, events: int
) -> None:
    forward = hybrid(ops)
    ended = reply(forward, tokenizer, TOKENS[:90], chunk=20, cancel_after=events)
    assert ended.reason == "cancelled"
    held = len(forward.cache)
    prompt = [*forward.cache.tokens, *TOKENS[150:170]]
    assert reply(forward, tokenizer, prompt).usage.cached_tokens == held
    assert_as_fresh(forward, hybrid(PlainOps()))


def test_a_closed_reply_leaves_what_can_be_gone_on_from(hybrid: Callable[..., Forward], tokenizer: Tokenizer) -> None:
    forward = hybrid()
    events = generate(forward, tokenizer, Prompt.of(TOKENS[:40]), GREEDY, chunk=16)
    for event in events:
        if not isinstance(event, PrefillProgress):
            break
    events.close()
    assert_as_fresh(forward, hybrid())


def breaking(kind: type[PlainOps] | type[NativeOps]) -> Any:
    """A device that fails in the middle of a pass, between layers that have moved and others that have not."""

    class Breaking(kind):  # type: ignore[misc, valid-type]
        broken = False

        def attention(self, *arguments: Any) -> Any:
            if self.broken:
                raise NumericsError("A key is too large.")
            return super().attention(*arguments)

    return Breaking


@pytest.mark.parametrize("kind", [PlainOps, NativeOps])
def test_a_pass_that_fails_half_way_drops_what_the_states_have_lost(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, kind: type[PlainOps] | type[NativeOps]
) -> None:
    with closing(breaking(kind)()) as ops:
        forward = hybrid(ops)
        reply(forward, tokenizer, TOKENS[:90])
        ops.broken = True
        with pytest.raises(NumericsError):
            forward.advance(TOKENS[100:120])
        ops.broken = False
        assert forward.cache.tokens == tuple(TOKENS[: 90 - HEADER_TOKENS])
        assert_as_fresh(forward, hybrid())
        forward.cache.truncate(3)
        assert len(forward.cache) == 0
        ops.broken = True
        with pytest.raises(NumericsError):
            forward.advance(TOKENS[:20])
        ops.broken = False
        assert_as_fresh(forward, hybrid())


def test_numbers_that_are_not_finite_are_named_and_the_rest_can_be_gone_on_from(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, ops: Ops, tmp_path: Path
) -> None:
    path = tmp_path / "poisoned.gguf"
    write_gguf(path, tiny("qwen35", vocab_size=260, max_position_embeddings=CAPACITY, hidden_size=32), "Q8_0")
    index = open_index(path)
    info = index.tensors["token_embd.weight"]
    data = bytearray(path.read_bytes())
    data[info.offset : info.offset + 2] = np.float16(np.nan).tobytes()  # the row of token 0
    path.write_bytes(data)
    forward = hybrid(ops, file=index)
    prompt = [*TOKENS[:90], 0, *TOKENS[90:100]]
    with pytest.raises(NumericsError, match=re.escape("token_embd.weight, first at position 90:")):
        reply(forward, tokenizer, prompt, chunk=8)
    assert forward.cache.tokens == tuple(prompt[: len(prompt) - HEADER_TOKENS])
    assert_as_fresh(forward, hybrid(PlainOps(), file=index))


def test_a_fault_in_a_recurrent_layer_is_named_by_it(
    hybrid: Callable[..., Forward], tokenizer: Tokenizer, ops: Ops, tmp_path: Path
) -> None:
    for tensor, where in (
        ("blk.1.ssm_conv1d.weight", "layer 1 (the convolution of blk.1)"),
        ("blk.2.ssm_dt.bias", "layer 2 (the delta rule of blk.2)"),
        ("blk.0.ssm_norm.weight", "layer 0 (the norm before blk.0.ssm_out.weight)"),
    ):
        path = tmp_path / f"{tensor}.gguf"
        write_gguf(path, tiny("qwen35", vocab_size=260, max_position_embeddings=CAPACITY, hidden_size=32), "Q8_0")
        index = open_index(path)
        data = bytearray(path.read_bytes())
        data[index.tensors[tensor].offset : index.tensors[tensor].offset + 4] = np.float32(np.nan).tobytes()
        path.write_bytes(data)
        with pytest.raises(NumericsError, match=re.escape(f"{where}, first at position 0:")):
            reply(hybrid(ops, file=index), tokenizer, TOKENS[:20])


def test_fingerprints_are_equal_over_chunks_and_devices(hybrid: Callable[..., Forward]) -> None:
    made = set()
    for device in CONTRACT:
        for chunk in (1, 3, 7, 512):
            with closing(DEVICES[device]()) as ops:
                made.add(fingerprint(hybrid(ops), TOKENS[:40], 4, chunk=chunk))
    assert len(made) == 1


def test_states_and_their_copies_are_counted() -> None:
    meter = Meter()
    cache = KVCache(PlainOps(), MIXED, 64, "f32", meter)
    assert state_bytes(MIXED) == 2 * STATE.nbytes == 2 * 4 * (3 * 16 + 4 * 8)
    assert meter.use().kv == cache.nbytes == cache_bytes(MIXED, 64, "f32")
    assert cache_bytes(MIXED, 64, "f32") == cache_bytes(MIXED[1:2], 64, "f32") + (1 + SNAPSHOTS) * 2 * STATE.nbytes
    cache.close()
    assert meter.use().kv == 0
    bare = KVCache(PlainOps(), MIXED, 64, "f32", meter, snapshots=0)
    assert bare.nbytes == cache_bytes(MIXED, 64, "f32") - SNAPSHOTS * 2 * STATE.nbytes


def test_a_cache_without_recurrent_layers_goes_back_to_any_length() -> None:
    cache = KVCache(PlainOps(), MIXED[1:2], 64, "f16", Meter())
    cache.extend([1, 2, 3, 4])
    cache.restore()
    assert (cache.recurrent, len(cache), cache.truncate(3), cache.keep_prefix(Prompt((1, 2, 3)))) == (False, 4, 3, 2)


class Marked:
    """States whose values tell the position at which they stand."""

    def __init__(self, snapshots: int) -> None:
        ops = PlainOps()
        self.layers = [ops.cache(spec, 64, "f16") for spec in MIXED]
        self.states = States(ops, self.layers, snapshots)

    def move(self, position: int) -> None:
        for layer in (self.layers[0], self.layers[2]):
            layer.memory[:] = position
        self.states.moved(position)

    def back(self, position: int) -> int:
        """Where they stand, which their values must say as well, unless it is the beginning."""
        at = self.states.back(position)
        assert at == 0 or all((layer.memory == at).all() for layer in (self.layers[0], self.layers[2]))
        return at


def test_states_go_back_to_the_last_copy_before_a_position() -> None:
    marked = Marked(snapshots=2)
    for position in (10, 20, 30):
        marked.move(position)
        if position < 30:
            marked.states.keep()
    assert [marked.back(position) for position in (30, 25, 20, 12, 9)] == [30, 20, 20, 10, 0]


def test_a_copy_too_many_takes_the_place_of_the_first() -> None:
    marked = Marked(snapshots=2)
    for position in (10, 20, 30, 40):
        marked.move(position)
        marked.states.keep()
        marked.states.keep()
    assert [marked.back(position) for position in (39, 29)] == [30, 0]


def test_copies_of_what_was_gone_back_behind_are_gone() -> None:
    marked = Marked(snapshots=2)
    for position in (10, 20):
        marked.move(position)
        marked.states.keep()
    assert marked.back(15) == 10
    marked.move(25)  # another text
    assert marked.back(22) == 10


def test_where_states_stand_is_not_known_after_a_pass_cut_short() -> None:
    marked = Marked(snapshots=1)
    marked.move(10)
    marked.states.keep()
    marked.move(20)
    for layer in (marked.layers[0], marked.layers[2]):
        layer.memory[:] = np.nan
    marked.states.moved(None)
    marked.states.keep()
    assert marked.back(20) == 10


def test_without_copies_there_is_only_the_beginning_to_go_back_to() -> None:
    marked = Marked(snapshots=0)
    marked.move(10)
    marked.states.keep()
    assert [marked.back(position) for position in (10, 9)] == [10, 0]
