"""The loop that turns a prompt into a stream of events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator

from engine.cancel import Cancel, Cancelled
from engine.decode.forward import Forward
from engine.decode.prompt import Prompt
from engine.decode.sampler import Sampler
from engine.kernels.ops import Tensor
from engine.text import Detokenizer, ReplyForm, StopStrings, Tokenizer
from engine.text.reply import HEADER_TOKENS
from engine.types import Event, Finished, FinishReason, PrefillProgress, Settings, Timings, Usage


def generate(
    forward: Forward,
    tokenizer: Tokenizer,
    prompt: Prompt,
    settings: Settings,
    *,
    chunk: int,
    form: ReplyForm | None = None,
    cancel: Cancel | None = None,
) -> Generator[Event]:
    """Read `prompt`, which fits into the cache and is not empty, then write until something ends the reply.

    `form` is how a reply tells reasoning and calls apart from text. Without one the reply goes on in the middle of the
    prompt's text: all of it is text, and a blank at its start belongs to it. What the cache shares with the prompt is
    not computed again. `cancel` is heeded before every chunk and every token, before every layer of a tower that looks
    at a picture, and while weights come from disk. Whenever an event is out, and after any exception or `close()` of
    the generator, the cache holds exactly the tokens it claims, so that the next prompt can build on it. The last event
    is `Finished`, whose reason is "stop" for an end token or a stop string, "length" for `max_tokens`, "context" where
    the cache is full. A character that any other reason than "stop" cuts in two is left out.
    """
    cancel = cancel or Cancel()
    cache = forward.cache
    reply = _Reply(len(prompt), forward.begin(prompt))
    # What the next prompt shares with this one may end in its last header, which says whether to think. Pictures come
    # before it, and are worth keeping.
    seen = max((placed.stop for placed in prompt.pictures), default=0)
    lasting = max(len(prompt) - HEADER_TOKENS, seen, len(cache)) if cache.recurrent else 0

    def progress() -> PrefillProgress:
        return PrefillProgress(len(cache), len(prompt), reply.cached, prompt.looks(len(cache)))

    yield progress()
    hidden: Tensor = None
    while len(cache) < len(prompt):
        if len(cache) == lasting:
            cache.keep_state()
        if cancel.is_set():
            yield reply.finished("cancelled")
            return
        started = time.perf_counter()
        size = lasting - len(cache) if len(cache) < lasting < len(cache) + chunk else chunk
        try:
            hidden = forward.advance(prompt.piece(len(cache), size), cancel)
        except Cancelled:
            yield reply.finished("cancelled")
            return
        reply.prefill_s += time.perf_counter() - started
        yield progress()

    sampler = Sampler(settings, _seed(settings), forward.model.vocabulary)
    sampler.see(prompt.ids)
    continues, form = form is None, form or ReplyForm()
    detokenizer = Detokenizer(tokenizer, continues=continues, keep=form.markers)
    stops = StopStrings(settings.stop)
    reader = form.reader(tokenizer, prompt.ids)
    token: int | None = None
    reason: FinishReason | None = None
    while reason is None:
        if cancel.is_set():
            reason = "cancelled"
            break
        started = time.perf_counter()
        try:
            if token is not None:
                hidden = forward.advance([token], cancel)
            token = sampler.sample(forward.next_logits(hidden), len(cache))
        except Cancelled:
            reason = "cancelled"
            break
        sampler.see([token])
        ended = token in tokenizer.eos_ids
        pieces = reader.push("" if ended else stops.push(detokenizer.push(token)))
        reply.count(time.perf_counter() - started)
        yield from pieces
        if ended or stops.matched is not None:
            reason = "stop"
        elif reply.tokens == settings.max_tokens:
            reason = "length"
        elif len(cache) == cache.capacity:
            reason = "context"
    yield from reader.push(stops.push(detokenizer.flush(cut=reason != "stop")) + stops.flush())
    yield from reader.flush()
    yield reply.finished(reason, reader.in_reasoning)


def _seed(settings: Settings) -> int:
    return secrets.randbits(32) if settings.seed is None else settings.seed


def cancelled(prompt: int) -> Finished:
    """The end of a reply that was cancelled before any of its prompt of so many tokens was computed."""
    return _Reply(prompt, 0).finished("cancelled")


class _Reply:
    """The counts and times of one reply. Time that the consumer spends on an event is not counted."""

    def __init__(self, prompt: int, cached: int) -> None:
        self.prompt = prompt
        self.cached = cached
        self.tokens = 0
        self.prefill_s = 0.0
        self._first_s = 0.0
        self._decode_s = 0.0

    def count(self, seconds: float) -> None:
        """One more token, which took this long. The first one's logits came from the prefill."""
        if self.tokens == 0:
            self._first_s = self.prefill_s + seconds
        else:
            self._decode_s += seconds
        self.tokens += 1

    def finished(self, reason: FinishReason, in_reasoning: bool = False) -> Finished:
        computed = self.prompt - self.cached
        steps = max(self.tokens - 1, 0)
        timings = Timings(
            prefill_s=self.prefill_s,
            decode_s=self._decode_s,
            first_token_s=self._first_s,
            prefill_tok_s=computed / self.prefill_s if self.prefill_s else 0.0,
            decode_tok_s=steps / self._decode_s if self._decode_s else 0.0,
        )
        return Finished(reason, Usage(self.prompt, self.cached, self.tokens), timings, in_reasoning)
