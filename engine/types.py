"""The plain data that crosses the engine's face: what is asked for, and the events that come back.

All are frozen dataclasses without tensors, so they may cross threads and processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

Role = Literal["system", "user", "assistant", "tool"]
Effort = Literal["low", "medium", "high"]
FinishReason = Literal["stop", "length", "context", "cancelled"]

CACHE_KINDS: Final = ("f16", "f32", "q8_0")
"""The number formats of the key-value cache."""

EFFORTS: Final = ("low", "medium", "high")
"""How much a model may be asked to reason."""


DEFAULT_CONTEXT: Final = 8192
"""Positions kept where the budgets name none and the model allows them."""

PLACE: Final = "\ufffc"
"""Unicode's object replacement character: stands for a picture in a message's text."""


@dataclass(frozen=True)
class Image:
    """A picture as it lies on disk: PNG, JPEG, WebP, GIF, BMP or HEIC. Errors call it by its `name`."""

    data: bytes = field(repr=False)
    name: str = "The picture"


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    `images` stand, in their order, where the text has a `PLACE`; those without one stand before the text.
    `calls` are those that the assistant's turn asks for. The turns of the role "tool" after it hold their results, in
    the same order. `reasoning` is what came before the turn's text and calls; the model's template decides how much of
    it the model is told again.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True)
class Tool:
    """What the model may call. `parameters` is the JSON Schema of an object, written as text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'


@dataclass(frozen=True)
class Budgets:
    """What the engine may use. `None` means: chosen by the engine. Nothing here but `kv`, `context` and `max_patches`
    changes a result.

    `context` is the number of positions kept; `kv` the form of the key-value cache, one of `CACHE_KINDS`;
    `chunk` the most prompt tokens per prefill call. `max_patches` caps how finely a picture is looked at, within what
    the model allows. `ram` and `vram` are bytes for all that is held for the model: weights, cache, buffers; what does
    not fit streams from disk, through `io_threads` at once, in blocks of at most `block_rows` rows.
    """

    threads: int | None = None
    context: int | None = None
    kv: str = "f16"
    chunk: int = 512
    max_patches: int | None = None
    ram: int | None = None
    vram: int | None = None
    io_threads: int | None = None
    block_rows: int | None = None


Tier = Literal["VRAM", "RAM", "disk"]


@dataclass(frozen=True)
class Placed:
    """So many bytes of a kind of weights ("attention", "experts", …) that are in one tier."""

    what: str
    tier: Tier
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """Where a model's weights are to be, what else takes memory, and how fast that makes it. All sizes are bytes.

    Of the `ram` granted, `weights` stay, `experts` is room for experts that were used lately, `arena` for blocks on
    their way from disk, and the rest is for `kv`, `activations`, `tables` of rotary positions and `vision`; it is at
    least the sum of these. Beside it the process takes `overhead` for the interpreter, its libraries and the tokenizer.
    Where `ram` was not named, it is what was free but for `reserve`, which is left to other programs. Where it was,
    `granted` is what was named, of which `ram` is as much as is free. `context` is less than `wanted` where nobody
    asked for it and memory is short.

    A step of decoding passes over `passed_per_token` of weights and reads `read_per_token` of them from disk. `disk` is
    bytes a second, `computing` those of this model's weights that the kernels pass over in a second where none come
    from disk, and `measured` when the older of these was measured, in seconds since 1970; `tok_s` is the speed to be
    expected of decoding at short context, `prefill_tok_s` that of reading a prompt. `None` where nothing was measured.
    """

    ram: int
    vram: int
    overhead: int
    reserve: int
    context: int
    kv_kind: str
    chunk: int
    weights: int
    experts: int
    arena: int
    kv: int
    activations: int
    tables: int
    vision: int
    io_threads: int
    block_bytes: int
    block_rows: int | None
    placed: tuple[Placed, ...]
    passed_per_token: int
    read_per_token: int
    disk: float | None
    computing: float | None
    tok_s: float | None
    prefill_tok_s: float | None
    measured: int | None
    granted: int | None
    wanted: int

    @property
    def streams(self) -> bool:
        """Whether any weight comes from disk while the model runs."""
        return any(placed.tier == "disk" for placed in self.placed)


@dataclass(frozen=True)
class Settings:
    """How a reply is made. `temperature` 0 is greedy; `seed` `None` draws a fresh one.

    `top_k` 0, `top_p` 1, `min_p` 0 and `repetition_penalty` 1 switch the respective filter off.
    `max_tokens` `None` goes on to the end of the context. `thinking` switches the model's reasoning on or off, and
    `effort` is how much of it there should be; `None` is what the model's template does by itself.
    """

    max_tokens: int | None = None
    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    thinking: bool | None = None
    effort: Effort | None = None


@dataclass(frozen=True)
class PrefillProgress:
    """`done` of `total` prompt tokens are read; `cached` of them were kept from an earlier turn. `picture`: the next
    ones stand for a picture, which has to be looked at first."""

    done: int
    total: int
    cached: int
    picture: bool = False


@dataclass(frozen=True)
class Text:
    """A piece of the reply, whole characters only."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning, whole characters only."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for. `arguments` is a JSON object, written as text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Usage:
    """Token counts of one reply. `cached_tokens` of the prompt were kept from an earlier turn."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Timings:
    """Seconds and rates of one reply. A rate is 0.0 where nothing was timed.

    `prefill_tok_s` counts only the tokens that were computed; `decode_tok_s` leaves the first token out,
    which comes from the prefill.
    """

    prefill_s: float
    decode_s: float
    first_token_s: float
    prefill_tok_s: float
    decode_tok_s: float


@dataclass(frozen=True)
class Finished:
    """The last event of a reply: why it ended, its counts and timings, and whether it ended inside its reasoning."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    in_reasoning: bool = False


Event = PrefillProgress | Text | Reasoning | ToolCall | Finished


@dataclass(frozen=True)
class LoadProgress:
    """`done` of `total` bytes of weights are in place; `what` names the step in plain words."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class ModelInfo:
    """What a model file says about itself, and what the engine makes of it."""

    path: str
    name: str
    architecture: str
    parameters: int
    file_bytes: int
    context_length: int
    layers: int
    hidden_size: int
    vocabulary: int
    encodings: dict[str, int] = field(default_factory=dict)
    """Bytes by weight encoding, largest first."""
    vision: str = ""
    """The projector of its vision tower, empty where it cannot see."""
    weight_bytes: int = 0
    """Memory of the weights, without a vision tower's."""
    vision_bytes: int = 0
    """Memory of the vision tower's weights, taken when the first picture comes."""
    context: int = 0
    """Positions that are kept unless another number is asked for; 0 where only the file was looked at."""
    kv_bytes: int = 0
    """Memory of the cache for `context` positions."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes that the engine holds, by part."""

    weights: int
    kv: int
    activations: int
    vision: int = 0
    """A vision tower, from the first picture on, and the pictures of the conversation."""
    experts: int = 0
    """Experts that were used lately."""
    arena: int = 0
    """Blocks on their way from disk."""
    tables: int = 0
    """Rotary positions."""

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.activations + self.vision + self.experts + self.arena + self.tables


@dataclass(frozen=True)
class Fingerprint:
    """Greedy ids after a raw prompt, and the hash over the float32 bits of every step's logits."""

    tokens: tuple[int, ...]
    sha256: str
