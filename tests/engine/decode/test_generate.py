from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cancel import Cancel, Cancelled
from engine.decode.forward import Forward
from engine.decode.generate import generate
from engine.decode.prompt import Prompt
from engine.errors import NumericsError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.ops import Handle, Tensor
from engine.kernels.plain import PlainOps
from engine.text import Tokenizer
from engine.types import Event, Finished, PrefillProgress, Settings, Text, Usage
from tests.tiny_chat import write_tiny_chat

MakeForward = Callable[..., Forward]
PROMPT = tuple(b"A mill by the river turns")
DRAWN = Settings(max_tokens=12, temperature=1.5, top_k=0, top_p=1, seed=11)


def events_of(
    forward: Forward,
    tokenizer: Tokenizer,
    settings: Settings = DRAWN,
    *,
    prompt: tuple[int, ...] = PROMPT,
    chunk: int = 8,
) -> list[Event]:
    return list(generate(forward, tokenizer, Prompt(prompt), settings, chunk=chunk))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def finish_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


@pytest.fixture(scope="module")
def whole(make_forward: MakeForward, tokenizer: Tokenizer) -> str:
    """The reply to PROMPT, undisturbed and from an empty cache."""
    return text_of(events_of(make_forward(), tokenizer))


def test_prefill_progress_rises_chunk_by_chunk_to_the_whole_prompt(
    make_forward: MakeForward, tokenizer: Tokenizer
) -> None:
    events = events_of(make_forward(), tokenizer)
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert progress == [PrefillProgress(done, 25, 0) for done in (0, 8, 16, 24, 25)]
    assert events[: len(progress)] == progress


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_the_chunk_never_changes_the_text(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, chunk: int
) -> None:
    assert text_of(events_of(make_forward(), tokenizer, chunk=chunk)) == whole != ""


def test_the_text_is_what_the_cached_tokens_decode_to(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    forward = make_forward()
    events = events_of(forward, tokenizer)
    assert finish_of(events).reason == "length"
    assert finish_of(events).usage == Usage(prompt_tokens=25, cached_tokens=0, completion_tokens=12)
    # The last token was never fed back, so the cache holds one less than was written.
    written = forward.cache.tokens[25:]
    assert len(written) == 11
    assert text_of(events).startswith(tokenizer.decode(written).rstrip("\ufffd"))


def test_a_second_turn_computes_only_what_was_added_and_answers_as_if_from_scratch(
    make_forward: MakeForward, tokenizer: Tokenizer
) -> None:
    forward = make_forward()
    events_of(forward, tokenizer)
    longer = forward.cache.tokens + tuple(b" and then")
    second = events_of(forward, tokenizer, prompt=longer)
    assert finish_of(second).usage.cached_tokens == 36
    assert second[0] == PrefillProgress(36, 45, 36)
    fresh = events_of(make_forward(), tokenizer, prompt=longer)
    assert finish_of(fresh).usage.cached_tokens == 0
    assert text_of(second) == text_of(fresh)


def test_a_regenerated_reply_computes_one_token_of_the_prompt(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    forward = make_forward()
    first, second = events_of(forward, tokenizer), events_of(forward, tokenizer)
    assert finish_of(second).usage.cached_tokens == 24
    assert text_of(first) == text_of(second)


@pytest.mark.parametrize("at", [0, 1, 3, 5, 9])
def test_cancel_stops_before_the_next_chunk_or_token(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, at: int
) -> None:
    forward, cancel, events = make_forward(), Cancel(), []
    for event in generate(forward, tokenizer, Prompt(PROMPT), DRAWN, chunk=8, cancel=cancel):
        events.append(event)
        if len(events) == at + 1:
            computed = len(forward.cache)
            cancel.set()
    assert finish_of(events).reason == "cancelled"
    assert len(forward.cache) == computed
    again = events_of(forward, tokenizer)
    assert text_of(again) == whole
    assert finish_of(again).usage.cached_tokens == min(computed, 24)


class Interrupted(PlainOps):
    """Is cancelled in the middle of a pass, as where weights come from disk: at this one of its linear layers."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def linear(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Cancelled
        return super().linear(*arguments, **options)


@pytest.mark.parametrize("at", [1, 2, 7, 12, 13, 14, 15, 17, 30])
def test_cancel_stops_in_the_middle_of_a_pass(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, at: int
) -> None:
    ops = Interrupted(at)
    forward = make_forward(ops)
    assert finish_of(events_of(forward, tokenizer)).reason == "cancelled"
    assert ops.left == 0
    computed = len(forward.cache)
    again = events_of(forward, tokenizer)
    assert text_of(again) == whole
    assert finish_of(again).usage.cached_tokens == min(computed, 24)


@pytest.mark.parametrize("at", range(9))
def test_a_closed_generator_leaves_a_cache_to_go_on_from(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, at: int
) -> None:
    forward = make_forward()
    events = generate(forward, tokenizer, Prompt(PROMPT), DRAWN, chunk=8)
    for _ in range(at):
        next(events)
    events.close()
    assert text_of(events_of(forward, tokenizer)) == whole


class FailingOps(PlainOps):
    """Raises NumericsError in the `nth` linear from now on."""

    nth = -1

    def linear(self, x: Tensor, weight: Handle, **more: Tensor) -> Tensor:
        self.nth -= 1
        if self.nth == 0:
            raise NumericsError("made to fail")
        return super().linear(x, weight, **more)


@pytest.mark.parametrize("nth", [2, 15, 30, 45, 62, 100])
def test_a_pass_that_fails_half_way_leaves_the_cache_as_it_was(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, nth: int
) -> None:
    ops = FailingOps()
    forward = make_forward(ops)
    events_of(forward, tokenizer, prompt=PROMPT[:10])
    ops.nth = nth
    with pytest.raises(NumericsError, match="made to fail"):
        events_of(forward, tokenizer)
    assert ops.nth == 0
    assert forward.cache.tokens[:25] == PROMPT[: len(forward.cache)]
    assert text_of(events_of(forward, tokenizer)) == whole


def test_a_stop_string_ends_the_reply_and_is_not_shown(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str
) -> None:
    stop = whole[4:7]
    events = events_of(make_forward(), tokenizer, replace(DRAWN, stop=("never", stop)))
    assert text_of(events) == whole[: whole.index(stop)]
    assert finish_of(events).reason == "stop"


def test_what_could_have_become_a_stop_string_is_shown_at_the_end(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str
) -> None:
    events = events_of(make_forward(), tokenizer, replace(DRAWN, stop=(whole[-2:] + "no more",)))
    assert text_of(events) == whole
    assert finish_of(events).reason == "length"


def test_an_end_token_ends_the_reply_and_is_not_shown(
    make_forward: MakeForward, tokenizer: Tokenizer, whole: str, tmp_path: Path
) -> None:
    forward = make_forward()
    whole = text_of(events_of(forward, tokenizer))
    ends = forward.cache.tokens[25 + 5]
    first = forward.cache.tokens.index(ends, 25) - 25
    other = open_index(write_tiny_chat(tmp_path / "other end.gguf", eos=ends))
    events = events_of(make_forward(), Tokenizer.from_metadata(other.metadata))
    assert finish_of(events).reason == "stop"
    assert finish_of(events).usage.completion_tokens == first + 1
    assert whole.startswith(text_of(events).rstrip("\ufffd"))
    assert len(text_of(events)) < len(whole)


def test_a_full_context_ends_the_reply(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    forward = make_forward(capacity=30)
    events = events_of(forward, tokenizer, replace(DRAWN, max_tokens=None))
    assert finish_of(events).reason == "context"
    assert len(forward.cache) == 30
    assert finish_of(events).usage.completion_tokens == 6


def test_a_prompt_that_fills_the_context_still_gets_its_one_token(
    make_forward: MakeForward, tokenizer: Tokenizer
) -> None:
    events = events_of(make_forward(capacity=25), tokenizer)
    assert (finish_of(events).reason, finish_of(events).usage.completion_tokens) == ("context", 1)


@pytest.mark.parametrize("way", ["length", "context", "cancelled", "stop"])
def test_a_character_cut_in_two_is_shown_only_where_the_model_left_it_so(
    make_forward: MakeForward, index: TensorIndex, tokenizer: Tokenizer, way: str
) -> None:
    cancel = Cancel()

    class Emoji(Tokenizer):
        """Reads every token as the next byte of "é🧭": token after token, whatever the model writes."""

        def token_bytes(self, token_id: int) -> bytes:
            written.append(token_id)
            if way == "cancelled" and len(written) == 4:
                cancel.set()
            return "é🧭".encode()[len(written) - 1 : len(written)]

    written: list[int] = []
    reading = Emoji.from_metadata(index.metadata)
    reading.eos_ids = frozenset()
    if way == "stop":
        forward = make_forward()
        events_of(forward, tokenizer, replace(DRAWN, temperature=0, max_tokens=9))
        reply = forward.cache.tokens[25:]
        ends = next(n for n in (3, 4, 5, 2) if n < len(reply) and reply[n] not in reply[:n])
        reading.eos_ids = frozenset({reply[ends]})
    forward = make_forward(capacity=25 + 3 if way == "context" else 64)
    settings = replace(DRAWN, temperature=0, max_tokens=4 if way == "length" else None)
    events = list(generate(forward, reading, Prompt(PROMPT), settings, chunk=8, cancel=cancel))
    assert finish_of(events).reason == way
    assert text_of(events) == ("é\ufffd" if way == "stop" else "é")


def test_timings_count_what_was_computed(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    timings = finish_of(events_of(make_forward(), tokenizer)).timings
    assert timings.prefill_tok_s == pytest.approx(25 / timings.prefill_s)
    assert timings.decode_tok_s == pytest.approx(11 / timings.decode_s)
    assert timings.first_token_s > timings.prefill_s > 0


def test_a_rate_of_nothing_is_zero(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    cancel = Cancel()
    cancel.set()
    events = list(generate(make_forward(), tokenizer, Prompt(PROMPT), DRAWN, chunk=8, cancel=cancel))
    timings = finish_of(events).timings
    assert (timings.prefill_tok_s, timings.decode_tok_s, timings.first_token_s) == (0, 0, 0)


def test_without_a_seed_two_replies_differ(make_forward: MakeForward, tokenizer: Tokenizer) -> None:
    fresh = replace(DRAWN, seed=None, max_tokens=30)
    forward = make_forward()
    assert text_of(events_of(forward, tokenizer, fresh)) != text_of(events_of(forward, tokenizer, fresh))
