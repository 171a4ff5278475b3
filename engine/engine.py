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

from engine.cancel import Cancel, Cancelled
from engine.checks import check_count, check_settings
from engine.decode.cache import KVCache
from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.decode.generate import cancelled, generate
from engine.decode.measure import Measurement, measure
from engine.decode.prompt import Prompt
from engine.errors import MillstreamError, SettingsError
from engine.info import with_needs
from engine.kernels.ops import Ops, Tensor
from engine.limit import BEGIN_OR_LEAVE, BEGIN_OR_SHORTEN, SHORTEN, ContextLimit
from engine.loading import Parts, load_parts
from engine.memory.meter import PARTS
from engine.memory.stream import Counts
from engine.text import Chat, ChatTemplate, ReplyForm
from engine.text.conversation import size
from engine.text.pictures import PICTURE
from engine.types import (
    Budgets,
    Event,
    Fingerprint,
    Image,
    LoadProgress,
    MemoryUse,
    Message,
    ModelInfo,
    Plan,
    Settings,
    Tool,
)
from engine.vision.eyes import blind
from engine.vision.patches import Picture

BENCH_TEXT = "Once upon a time there was a little mill by the river. "
"""More than 8 tokens for any tokenizer."""

LONG = 16
"""Characters for each position of the context from which on a conversation may be too long to be worth encoding."""

BUSY = "The engine is still at work on another request: let it finish or cancel it first."


class Engine:
    """One model in memory, its tokenizer, and the cache of one conversation. Made by `Engine.load`.

    It does one thing at a time, in the thread that asks; a second request meanwhile is refused. `Cancel`, `close` and
    the properties may be used from any thread.
    """

    def __init__(self, parts: Parts) -> None:
        """Raises BudgetError where the memory for the conversation is not there."""
        budgets, plan, model = parts.budgets, parts.plan, parts.model
        self.info: ModelInfo = with_needs(parts.info, model, parts.eyes, budgets.kv)
        """What the file says about itself."""
        self.plan = plan
        """Where its weights are, and how fast that should make it."""
        self.bytes_read = parts.bytes_read
        """Bytes of weights that have come from disk while it was loaded."""
        self._index = parts.index
        self._tokenizer = parts.tokenizer
        self._model = model
        self._ops = parts.ops
        self._budgets = budgets
        self._meter = parts.meter
        self._streaming = parts.streaming
        self._cache = KVCache(parts.ops, model.caches, model.context_length, budgets.kv, parts.meter)
        self._limit = ContextLimit(self._cache.capacity, self.info, parts.tokenizer)
        self._eyes = parts.eyes
        self._forward = Forward(model, parts.ops, self._cache, self._see, parts.meter)
        self._busy = threading.Lock()
        self._step = threading.Lock()
        self._closed = self._released = False

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        budgets: Budgets | None = None,
        *,
        mmproj: str | os.PathLike[str] | None = None,
        measurements: str | os.PathLike[str] | None = None,
        planned: Callable[[Plan], None] | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
        cancel: Cancel | None = None,
        ops: Ops | None = None,
    ) -> Engine:
        """Open a model file and bring its weights into memory, as far as they fit into the budgets.

        `mmproj` is the file of its vision tower, by default the one that lies beside it and fits. `measurements` is a
        file of figures of this machine (`engine.plan`): without it the drive is measured anew where weights stream.

        `planned` is told, in this thread, how the model is going to be placed, before its weights are read; `progress`
        is called as they arrive. `cancel` makes the load raise `Cancelled`, while a disk hangs, too. `ops` takes the
        place of this processor's kernels; the engine closes it with itself.

        Raises ModelFileError for a missing or damaged file, UnsupportedModelError for one that this engine cannot
        run, SettingsError for budgets outside what is allowed, BudgetError where too little memory is granted or free.
        """
        parts = load_parts(
            Path(path),
            budgets or Budgets(),
            mmproj=None if mmproj is None else Path(mmproj),
            measurements=None if measurements is None else Path(measurements),
            planned=planned,
            progress=progress,
            cancel=cancel,
            ops=ops,
        )
        try:
            return cls(parts)
        except BaseException:
            parts.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of threads and memory. A second call does nothing.

        Waits for the step under way, though not for the disk; a reply that has not ended is refused its next one.
        """
        self._closed = True  # before the lock: a reply that runs on would take it again first
        if self._streaming is not None:
            self._streaming.stop()  # a read may hang for good
        with self._step:
            if not self._released:
                self._released = True
                self._cache.close()
                if self._streaming is not None:
                    self._streaming.close()
                self._ops.close()
                self._eyes = self._streaming = None
                del self._model, self._forward
                for part in PARTS:
                    self._meter.set(part, 0)

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
        self,
        messages: Sequence[Message],
        settings: Settings | None = None,
        *,
        tools: Sequence[Tool] = (),
        cancel: Cancel | None = None,
    ) -> Iterator[Event]:
        """Answer the conversation through the model's own chat template. `tools` are those that the model may call.

        The events come as they are made; leaving the loop early, or closing the iterator, stops the reply and keeps
        what was computed. Bad settings, or such as the model cannot follow (SettingsError), a prompt longer than the
        context (ContextError), a template that the model lacks or that fails (UnsupportedModelError) and a busy engine
        are refused by the call itself.
        """
        self._check_free()
        settings = settings or Settings()
        check_settings(settings)
        form = self._chat.reply_form(tools)
        images = [image for message in messages for image in message.images]
        if images and self._eyes is None:
            raise blind(self.info.name, self._index)
        if size(messages, tools) > LONG * self.context_length:
            # Rendered, because a template may leave out what it is given, such as blanks and earlier reasoning.
            self._limit.check_text(self._chat.render(messages, settings, tools), BEGIN_OR_SHORTEN)
        ids = self._chat.encode(messages, settings, tools, self._eyes.form if images and self._eyes else None)
        try:
            seen = self._with_pictures(ids, images, cancel)
        except Cancelled:
            return iter((cancelled(len(ids)),))
        return self._reply(Prompt.of(seen), settings, cancel, form)

    def generate(
        self, prompt: str, settings: Settings | None = None, *, cancel: Cancel | None = None
    ) -> Iterator[Event]:
        """Go on from raw text, without a template; special tokens written in it are recognised. Otherwise as `chat`."""
        self._check_free()
        settings = settings or Settings()
        check_settings(settings)
        if settings.thinking is not None or settings.effort is not None:
            raise SettingsError("Raw text has no switches of reasoning: leave thinking and effort away, or use chat.")
        self._limit.check_text(prompt, SHORTEN)
        return self._reply(Prompt.of(self._encode(prompt)), settings, cancel)

    def fingerprint(self, prompt: str, n: int, *, chunk: int | None = None) -> Fingerprint:
        """`n` greedy tokens after raw text, and a hash over the bits of all logits (`engine.decode.fingerprint`).

        `chunk` overrides the budgets', up to what the plan has memory for. The conversation's cache is left alone.
        """
        check_count("n", n)
        chunk = self.plan.chunk if chunk is None else chunk
        check_count("chunk", chunk)
        chunk = min(chunk, self.plan.chunk)
        self._limit.check_text(prompt, SHORTEN)
        tokens = self._encode(prompt)
        with self._side_job(tokens, n - 1) as forward:
            return fingerprint(forward, tokens, n, chunk=chunk)

    def measure(self, prompt_tokens: int = 512, tokens: int = 128) -> Measurement:
        """Time prefill and decoding, and the machine itself (`engine.decode.measure`). The cache is left alone."""
        check_count("prompt_tokens", prompt_tokens)
        check_count("tokens", tokens)
        self._limit.check(prompt_tokens, tokens)
        prompt = self._encode(BENCH_TEXT * (prompt_tokens // 8 + 1))[:prompt_tokens]
        with self._side_job(prompt, tokens) as forward:
            streamed = Counts if self._streaming is None else self._streaming.count
            return measure(
                forward,
                self._index,
                prompt,
                tokens,
                plan=self.plan,
                meter=self._meter,
                bytes_read=self.bytes_read,
                streamed=streamed,
            )

    def _reply(
        self, prompt: Prompt, settings: Settings, cancel: Cancel | None, form: ReplyForm | None = None
    ) -> Iterator[Event]:
        """`form` is `None` for a reply that goes on from raw text."""
        answered = BEGIN_OR_LEAVE if prompt.pictures else BEGIN_OR_SHORTEN
        self._limit.check(len(prompt), 0, SHORTEN if form is None else answered)
        chunk = self.plan.chunk
        return self._exclusive(
            generate(self._forward, self._tokenizer, prompt, settings, chunk=chunk, form=form, cancel=cancel), cancel
        )

    def _with_pictures(
        self, ids: Sequence[int], images: Sequence[Image], cancel: Cancel | None
    ) -> Sequence[int | Picture]:
        """The ids with the prepared images in the places of pictures."""
        if not images:
            return ids
        assert self._eyes is not None
        with self._claimed(cancel), self._stepping():
            others = len(ids) - len(images)
            looked = self._eyes.look(
                images,
                self._model,
                self._ops,
                self._meter,
                self._budgets.max_patches,
                lambda tokens: self._limit.check_least(others + tokens, BEGIN_OR_LEAVE),
                cancel,
            )
            pictures = iter(looked)
        return [next(pictures) if token == PICTURE else token for token in ids]

    def _see(self, picture: Picture, cancel: Cancel | None) -> Tensor:
        assert self._eyes is not None
        return self._eyes.features(picture, self._ops, cancel)

    def _exclusive(self, events: Generator[Event], cancel: Cancel | None) -> Iterator[Event]:
        """Pass the events on, one reply at a time and never beside `close`."""
        with self._claimed(cancel), closing(events):
            while True:
                with self._stepping():
                    event = next(events, None)
                if event is None:
                    return
                yield event

    @contextmanager
    def _side_job(self, prompt: list[int], steps: int) -> Iterator[Forward]:
        """A cache for `prompt` and `steps` more tokens: the conversation's as long as there is none, else another."""
        self._limit.check(len(prompt), steps)
        with self._claimed(), self._stepping():
            if not len(self._cache):
                self._forward.begin(Prompt.of(prompt))
                try:
                    yield self._forward
                finally:
                    self._cache.truncate(0)
                return
            capacity, kind = len(prompt) + steps, self._budgets.kv
            cache = KVCache(self._ops, self._model.caches, capacity, kind, self._meter, snapshots=0)
            with closing(cache):
                yield Forward(self._model, self._ops, cache)

    @contextmanager
    def _claimed(self, cancel: Cancel | None = None) -> Iterator[None]:
        """The right to compute, held by one at a time. `cancel` breaks waits for the disk."""
        if not self._busy.acquire(blocking=False):
            raise MillstreamError(BUSY)
        try:
            if self._streaming is not None:
                self._streaming.begin(cancel)
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

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=True, add_bos=self._tokenizer.add_bos)

    @cached_property
    def _chat(self) -> Chat:
        return Chat(ChatTemplate.from_metadata(self._index.metadata, self._tokenizer), self._tokenizer)
