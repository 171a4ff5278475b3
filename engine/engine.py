"""The engine: one loaded model and one conversation. The package's docstring shows how it is used."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from engine import models
from engine.cancel import Cancel
from engine.checks import check_budgets, check_count, check_settings
from engine.decode.cache import KVCache
from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.decode.generate import generate
from engine.decode.measure import Measurement, measure
from engine.errors import ContextError, MillstreamError, SettingsError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.info import model_info
from engine.kernels.ops import Ops
from engine.memory.meter import Meter, require_free
from engine.memory.store import WeightStore
from engine.models.model import Model
from engine.text import ChatTemplate, Tokenizer
from engine.text.bound import LengthBound
from engine.types import Budgets, Event, Fingerprint, LoadProgress, MemoryUse, Message, ModelInfo, Settings

DEFAULT_CONTEXT = 8192
"""Positions kept where the budgets name none and the model allows them."""

BENCH_TEXT = "Once upon a time there was a little mill by the river. "
"""More than 8 tokens for any tokenizer."""

LONG = 16
"""Characters for each position of the context from which on a conversation may be too long to be worth encoding."""

SHORTEN = "shorten the text"
BEGIN_OR_SHORTEN = "begin a new conversation or shorten the text"

BUSY = "The engine is still at work on another request: let it finish or cancel it first."


class Engine:
    """One model in memory, its tokenizer, and the cache of one conversation. Made by `Engine.load`.

    It does one thing at a time, in the thread that asks; a second request meanwhile is refused. `Cancel`, `close` and
    the properties may be used from any thread.
    """

    def __init__(
        self, index: TensorIndex, tokenizer: Tokenizer, model: Model, ops: Ops, budgets: Budgets, meter: Meter
    ) -> None:
        self.info: ModelInfo = model_info(index)
        """What the file says about itself."""
        self.bytes_read = 0
        """Bytes of weights that have come from disk."""
        self._index = index
        self._tokenizer = tokenizer
        self._model = model
        self._ops = ops
        self._budgets = budgets
        self._meter = meter
        self._cache = KVCache(ops, model.caches, model.context_length, budgets.kv, meter)
        self._forward = Forward(model, ops, self._cache)
        self._busy = threading.Lock()
        self._step = threading.Lock()
        self._closed = self._released = False

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        budgets: Budgets | None = None,
        *,
        progress: Callable[[LoadProgress], None] | None = None,
        cancel: Cancel | None = None,
        ops: Ops | None = None,
    ) -> Engine:
        """Open a model file and bring its weights into memory.

        `progress` is called, in this thread, as weights arrive. `cancel` makes the load raise `Cancelled`. `ops` takes
        the place of this processor's kernels; the engine closes it with itself.

        Raises ModelFileError for a missing or damaged file, UnsupportedModelError for one that this engine cannot
        run, SettingsError for budgets outside what is allowed, BudgetError where too little memory is free.
        """
        budgets = budgets or Budgets()
        check_budgets(budgets)
        index = open_index(Path(path))
        info = model_info(index)
        context = _context(budgets, info)
        tokenizer = Tokenizer.from_metadata(index.metadata)
        require_free(
            sum(tensor.nbytes for tensor in index.tensors.values()),
            info.name,
            "close other programs or choose a smaller model",
        )
        if ops is None:
            ops = _native(budgets)
        meter = Meter()
        try:
            with closing(WeightStore(index, ops, meter, progress=progress, cancel=cancel)) as store:
                model = models.build(index.metadata, store, context=context)
                store.require_all_used()
            engine = cls(index, tokenizer, model, ops, budgets, meter)
            engine.bytes_read = store.bytes_read
            return engine
        except BaseException:
            ops.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of threads and memory. A second call does nothing.

        Waits for the step under way; a reply that has not ended is refused its next one.
        """
        self._closed = True  # before the lock: a reply that runs on would take it again first
        with self._step:
            if not self._released:
                self._released = True
                self._cache.close()
                self._ops.close()
                del self._model, self._forward
                self._meter.set("weights", 0)
                self._meter.set("activations", 0)

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return self._ops.threads

    @property
    def memory(self) -> MemoryUse:
        """Bytes held now, by part."""
        return self._meter.use()

    @property
    def context_length(self) -> int:
        """Positions that prompt and reply may fill together."""
        return self._cache.capacity

    def chat(
        self, messages: Sequence[Message], settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        """Answer the conversation through the model's own chat template.

        The events come as they are made; leaving the loop early, or closing the iterator, stops the reply and keeps
        what was computed. Bad settings (SettingsError), a prompt longer than the context (ContextError), a template
        that the model lacks or that fails (UnsupportedModelError) and a busy engine are refused by the call itself.
        """
        self._check_free()
        if sum(len(message.content) for message in messages) > LONG * self.context_length:
            # Rendered, because a template may leave out what it is given, such as blanks and earlier reasoning.
            self._check_text(self._template.render(messages), BEGIN_OR_SHORTEN)
        prompt = self._tokenizer.encode_chat(self._template, messages)
        return self._reply(prompt, settings, cancel, continues=False)

    def generate(
        self, prompt: str, settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        """Go on from raw text, without a template; special tokens written in it are recognised. Otherwise as `chat`."""
        self._check_free()
        self._check_text(prompt, SHORTEN)
        return self._reply(self._encode(prompt), settings, cancel, continues=True)

    def fingerprint(self, prompt: str, n: int, *, chunk: int | None = None) -> Fingerprint:
        """`n` greedy tokens after raw text, and a hash over the bits of all logits (`engine.decode.fingerprint`).

        `chunk` overrides the budgets'. The conversation's cache is left alone.
        """
        check_count("n", n)
        chunk = self._budgets.chunk if chunk is None else chunk
        check_count("chunk", chunk)
        self._check_text(prompt, SHORTEN)
        tokens = self._encode(prompt)
        with self._side_job(tokens, n - 1) as forward:
            return fingerprint(forward, tokens, n, chunk=chunk)

    def measure(self, prompt_tokens: int = 512, tokens: int = 128) -> Measurement:
        """Time prefill and decoding, and the machine itself (`engine.decode.measure`). The cache is left alone."""
        check_count("prompt_tokens", prompt_tokens)
        check_count("tokens", tokens)
        self._check_length(prompt_tokens, tokens)
        prompt = self._encode(BENCH_TEXT * (prompt_tokens // 8 + 1))[:prompt_tokens]
        with self._side_job(prompt, tokens) as forward:
            return measure(forward, self._index, prompt, tokens, chunk=self._budgets.chunk, bytes_read=self.bytes_read)

    def _reply(
        self, prompt: list[int], settings: Settings | None, cancel: Cancel | None, *, continues: bool
    ) -> Iterator[Event]:
        settings = settings or Settings()
        check_settings(settings)
        self._check_length(len(prompt), 0, SHORTEN if continues else BEGIN_OR_SHORTEN)
        chunk = self._budgets.chunk
        return self._exclusive(
            generate(self._forward, self._tokenizer, prompt, settings, chunk=chunk, continues=continues, cancel=cancel)
        )

    def _exclusive(self, events: Generator[Event]) -> Iterator[Event]:
        """Pass the events on, one reply at a time and never beside `close`."""
        with self._claimed(), closing(events):
            while True:
                with self._stepping():
                    event = next(events, None)
                if event is None:
                    return
                yield event

    @contextmanager
    def _side_job(self, prompt: list[int], steps: int) -> Iterator[Forward]:
        """A cache of its own for `prompt` and `steps` more tokens."""
        self._check_length(len(prompt), steps)
        with self._claimed(), self._stepping():
            capacity, kind = len(prompt) + steps, self._budgets.kv
            cache = KVCache(self._ops, self._model.caches, capacity, kind, self._meter, snapshots=0)
            with closing(cache):
                yield Forward(self._model, self._ops, cache)

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """The right to compute, held by one at a time."""
        if not self._busy.acquire(blocking=False):
            raise MillstreamError(BUSY)
        try:
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _stepping(self) -> Iterator[None]:
        """A step, which `close` waits for."""
        with self._step:
            self._check_open()
            yield
            self._meter.set("activations", self._ops.nbytes)

    def _check_free(self) -> None:
        self._check_open()
        if self._busy.locked():
            raise MillstreamError(BUSY)

    def _check_open(self) -> None:
        if self._closed:
            raise MillstreamError(f"The engine for {self.info.name} is closed: load the model again.")

    def _check_length(self, prompt: int, steps: int, way_out: str = SHORTEN) -> None:
        if prompt == 0:
            raise SettingsError("The prompt is empty: there is nothing to go on from.")
        if prompt + steps > self.context_length:
            after = f" and {steps} more" if steps else ""
            raise self._too_long(f"{prompt} tokens{after}", way_out)

    def _check_text(self, text: str, way_out: str) -> None:
        """Refuse at once what is too long however it is encoded."""
        if len(text) > self.context_length and self._bound.least_tokens(text) > self.context_length:
            raise self._too_long(f"{len(text)} characters", way_out)

    def _too_long(self, prompt: str, way_out: str) -> ContextError:
        """The sentence for a prompt of this size."""
        largest = self.info.context_length
        if largest and self.context_length >= largest:
            return ContextError(
                f"The prompt has {prompt}, but the context holds {self.context_length} tokens, this model's largest: "
                f"{way_out}."
            )
        allows = f" ({self.info.name} allows {largest})" if largest else ""
        return ContextError(
            f"The prompt has {prompt}, but the context holds {self.context_length} tokens: {way_out}, or load the "
            f"model with a larger context{allows}."
        )

    @cached_property
    def _bound(self) -> LengthBound:
        return LengthBound(self._tokenizer)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=True, add_bos=self._tokenizer.add_bos)

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.from_metadata(self._index.metadata, self._tokenizer)


def _native(budgets: Budgets) -> Ops:
    from engine.kernels.native import NativeOps

    return NativeOps(threads=budgets.threads)


def _context(budgets: Budgets, info: ModelInfo) -> int:
    """Positions to keep. Raises SettingsError where more are asked for than the model was made for."""
    if budgets.context is None:
        return min(info.context_length or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if info.context_length and budgets.context > info.context_length:
        raise SettingsError(
            f"context must be at most {info.context_length}, for which {info.name} was made, not {budgets.context}."
        )
    return budgets.context
