"""Which experts the tokens of a conversation go to: recorded from a model, or made up with a measured skew.

A prompt's tokens are computed in chunks and the reply's one by one. Since a token's experts are the same bits either
way, a trace holds them by token, and says beside it which tokens are computed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine import models
from engine.formats.gguf import read
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.kernels.native.experts import NativeRouting
from engine.kernels.native.pointwise import NativeVector
from engine.kernels.native.tensors import NativeTensor
from engine.kernels.ops import Router
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.text.tokenizer import Tokenizer

CHUNK = 512
"""Tokens of a prompt that are computed together."""
TURNS = ((40, 120), (700, 200), (25, 150), (1100, 180), (60, 250), (300, 200))
"""Tokens of the prompt and of the reply, turn by turn, and from the start again."""


@dataclass(frozen=True)
class Trace:
    """`ids` [tokens, layers, k] of `n_experts`; tokens `start … stop - 1` of each of `passes` are computed together.

    `nbytes` are those of one expert, by layer.
    """

    name: str
    ids: npt.NDArray[np.int16]
    n_experts: int
    passes: tuple[tuple[int, int], ...]
    nbytes: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes of all experts."""
        return sum(self.nbytes) * self.n_experts


def turns(tokens: int) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    """Where the turns of a conversation of so many tokens begin, and its passes."""
    begins, passes, at = [], [], 0
    while at < tokens:
        prompt, reply = TURNS[len(begins) % len(TURNS)]
        begins.append(at)
        stop = min(at + prompt, tokens)
        passes += [(start, min(start + CHUNK, stop)) for start in range(at, stop, CHUNK)]
        at = min(stop + reply, tokens)
        passes += [(start, start + 1) for start in range(stop, at)]
    return begins, tuple(passes)


class Listening(NativeOps):
    """Keeps what the routers choose: int16 [n, k] of each mixture that is run."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[npt.NDArray[np.int16]] = []

    def route(self, logits: NativeTensor, router: Router, bias: NativeVector | None = None) -> NativeRouting:
        routing = super().route(logits, router, bias)
        self.heard.append(routing.ids.array().view(np.int32).astype(np.int16))
        return routing


def recorded(path: Path, text: str, limit: int) -> Trace:
    """The first `limit` tokens of the text through a mixture in a GGUF file.

    The model sees each `CHUNK` of them alone, as the start of a text: a random one does not care.
    """
    index = read(path)
    tokens = Tokenizer.from_metadata(index.metadata).encode(text, parse_special=False, add_bos=False)[:limit]
    ids = []
    with closing(Listening()) as ops:
        with closing(WeightStore(index, ops, Meter())) as store:
            model = models.build(index.metadata, store, context=CHUNK)
        for start in range(0, len(tokens), CHUNK):
            caches = [ops.cache(spec, CHUNK, "f16") for spec in model.caches]
            model.hidden(ops, tokens[start : start + CHUNK], 0, caches)
            ids.append(np.stack(ops.heard, axis=1))
            ops.heard.clear()
    n_experts, nbytes = _experts(index)
    return Trace(path.name, np.concatenate(ids), n_experts, turns(len(tokens))[1], nbytes)


def _experts(index: TensorIndex) -> tuple[int, tuple[int, ...]]:
    """How many a mixture has, and the bytes of one, by layer."""
    layers: dict[int, int] = {}
    n_experts = 0
    for name, info in index.tensors.items():
        if "_exps.weight" in name:
            layer, n_experts = int(name.split(".")[1]), info.shape[0]
            layers[layer] = layers.get(layer, 0) + info.nbytes
    return n_experts, tuple(layers[layer] // n_experts for layer in sorted(layers))


@dataclass(frozen=True)
class Skew:
    """How uneven the use of experts is.

    An expert's score is that of its rank by a law of Zipf with the exponent `popular`, as much again for its rank
    within the topic with the exponent `topical`, and noise of Gumbel's kind, which makes the ranks' powers the odds of
    being drawn. With the probability `lasting` an expert's noise stays that of the token before. Exponents differ
    between layers by up to half of them.
    """

    popular: float
    topical: float
    lasting: float


def made_up(
    name: str,
    skew: Skew,
    *,
    tokens: int = 5600,
    layers: int = 12,
    n_experts: int = 128,
    k: int = 8,
    topics: int = 4,
    nbytes: Sequence[int] = (1 << 20,),
    seed: int = 0,
) -> Trace:
    """A conversation that takes up another of its topics with every second turn. `nbytes` repeat over the layers."""
    draws = np.random.default_rng(seed)
    begins, passes = turns(tokens)
    steep = np.linspace(0.5, 1.5, layers)[:, None]
    popular = -skew.popular * steep * np.log(_ranks(draws, (layers, n_experts)))
    topical = -skew.topical * steep * np.log(_ranks(draws, (topics, layers, n_experts)))
    ids = np.empty((tokens, layers, k), np.int16)
    noise = draws.gumbel(size=(layers, n_experts))
    for token in range(tokens):
        turn = int(np.searchsorted(begins, token, side="right")) - 1
        fresh = draws.random(noise.shape) >= skew.lasting
        noise[fresh] = draws.gumbel(size=noise.shape)[fresh]
        scores = popular + topical[turn // 2 % topics] + noise
        ids[token] = np.argpartition(-scores, k, axis=1)[:, :k]
    sizes = tuple(nbytes[layer % len(nbytes)] for layer in range(layers))
    return Trace(name, ids, n_experts, passes, sizes)


def _ranks(draws: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """1 … n in an order of its own along each last axis."""
    return draws.permuted(np.broadcast_to(np.arange(1.0, shape[-1] + 1), shape), axis=-1)


def uneven(trace: Trace) -> tuple[float, float, float]:
    """What publications report of a model's routing, as shares of all routings: those that go to the busiest fifth of
    the experts, by layer; those that a fifth chosen by one stretch of 24 tokens serves of the same stretch; and those
    that it serves of another turn's."""
    tokens, layers, k = trace.ids.shape
    fifth = trace.n_experts // 5
    starts = [begin for begin in turns(tokens)[0] if begin + 24 <= tokens]
    whole, same, other = 0.0, 0.0, 0.0
    for layer in range(layers):
        counts = [np.bincount(trace.ids[s : s + 24, layer].ravel(), minlength=trace.n_experts) for s in starts]
        everything = np.bincount(trace.ids[:, layer].ravel(), minlength=trace.n_experts)
        whole += np.sort(everything)[-fifth:].sum() / (tokens * k)
        for index, count in enumerate(counts):
            chosen = np.argsort(-count, kind="stable")[:fifth]
            same += count[chosen].sum() / (24 * k * len(counts))
            other += counts[(index + 2) % len(counts)][chosen].sum() / (24 * k * len(counts))
    return whole / layers, same / layers, other / layers
