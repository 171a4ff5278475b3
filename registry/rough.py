"""How large a model would be and what it would take, from its shape alone: before anything is asked of the Hub.

A file that is there, or a header that was fetched, tells better: this is for a first look, good to a tenth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.errors import SettingsError
from engine.weights import get
from registry.catalogue import Entry, Shape

CONTEXT: Final = 8192
"""Positions of which memory is reckoned, where the model goes so far: what the engine takes unless asked."""
CHUNK: Final = 512
"""Rows of a chunk of a prompt, unless asked."""
ROW: Final = 24
"""Floats of activations for each row of a chunk, in widths of the model: measured 20 … 27 over three Qwen3 shapes and
the starter."""
TOKEN: Final = 40
"""Bytes of a file's tokenizer for each token: 36 and 40 of the starter's and Qwen3's."""
STATES: Final = 3
"""Sets of recurrent states that a conversation keeps (`engine.decode.states`)."""
CELL: Final = 2
"""Bytes of a number in the cache of keys and values, which is F16 unless asked."""
BLOCK: Final = 256
"""Weights of a block of the K encodings. Rows that are no whole number of them take `FALLBACKS`."""
FALLBACKS: Final[Mapping[str, str]] = MappingProxyType({"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"})
"""llama.cpp's `tensor_type_fallback`."""


@dataclass(frozen=True)
class Mix:
    """What a quantisation makes of the parts of a model. `body` are the encodings of its matrices, each with its
    share, `experts` the same where they are packed otherwise. `head` is the embedding's, too, where both are one;
    `table` is the embedding's where they are not. `lookup` is that of further tables, the head's where it is ""."""

    body: Mapping[str, float]
    head: str
    table: str
    experts: Mapping[str, float] | None = None
    lookup: str = ""


def _more(low: str, high: str, share: float) -> Mapping[str, float]:
    return MappingProxyType({low: 1 - share, high: share})


_HALF_OF_DOWN: Final = 1 / 6
"""Share of a body in more bits: in llama.cpp's mixes of medium size half of the down matrices (`use_more_bits`)."""

MIXES: Final[Mapping[str, Mix]] = MappingProxyType(
    {
        "F16": Mix({"F16": 1.0}, "F16", "F16"),
        "BF16": Mix({"BF16": 1.0}, "BF16", "BF16"),
        "Q8_0": Mix({"Q8_0": 1.0}, "Q8_0", "Q8_0"),
        "Q6_K": Mix({"Q6_K": 1.0}, "Q6_K", "Q6_K"),
        "Q5_K_M": Mix(_more("Q5_K", "Q6_K", _HALF_OF_DOWN), "Q6_K", "Q5_K"),
        "Q4_K_M": Mix(_more("Q4_K", "Q6_K", _HALF_OF_DOWN), "Q6_K", "Q4_K", lookup="Q5_K"),
        "Q4_1": Mix({"Q4_1": 1.0}, "Q6_K", "Q4_1"),
        # Gemma's, trained for it, which have the embedding in Q8_0.
        "Q4_0": Mix({"Q4_0": 1.0}, "Q8_0", "Q8_0"),
        # Of gpt-oss, whose other matrices are in Q8_0.
        "MXFP4": Mix({"Q8_0": 1.0}, "Q8_0", "Q8_0", {"MXFP4": 1.0}),
        # Unsloth's own mixes, of published sizes: 5.1 … 5.4, 4.4, 3.5 and 3.0 bits a weight.
        "UD-Q4_K_M": Mix(_more("Q4_K", "Q6_K", 0.32), "Q6_K", "Q6_K"),
        "UD-Q4_K_XL": Mix({"Q4_K": 1.0}, "Q6_K", "Q4_K"),
        "UD-Q3_K_XL": Mix(_more("Q3_K", "Q4_K", 0.1), "Q6_K", "Q4_K"),
        "UD-Q2_K_XL": Mix(_more("Q2_K", "Q3_K", 0.45), "Q6_K", "Q4_K"),
    }
)
"""The quantisations that are known, by the names that files have."""


@dataclass(frozen=True)
class Rough:
    """Bytes of a model in a quantisation.

    `file` is the size of the download without `tower`, the vision tower's. `dense` is what each token passes, the head
    among it; `experts` are all experts, of which a token passes `active_experts`; `tables` are what it reads single
    rows of. `position` is the cache's for one position, `state` that of recurrent layers, `work` what a chunk of a
    prompt takes beside.
    """

    file: int
    tower: int
    dense: int
    experts: int
    active_experts: int
    tables: int
    position: int
    state: int
    work: int

    @property
    def weights(self) -> int:
        return self.dense + self.experts + self.tables

    @property
    def passed(self) -> int:
        """Bytes of weights that a token passes."""
        return self.dense + self.active_experts

    def beside(self, context: int, *, sees: bool) -> int:
        """What a conversation takes beside the weights."""
        return context * self.position + self.state + self.work + (self.tower if sees else 0)


def rough(entry: Entry, quantisation: str) -> Rough:
    """Raises SettingsError for a quantisation that is not known."""
    return of_shape(entry.shape, quantisation, tower_bits(entry.mmproj))


def of_shape(shape: Shape, quantisation: str, tower: float = 16.0) -> Rough:
    """The same of any shape; `tower` are bits of a weight of its vision tower. Raises as `rough`."""
    mix = _mix(quantisation)
    wide = shape.hidden % BLOCK == 0
    body, head, table = _bits(mix.body, wide), _one(mix.head, wide), _one(mix.table, wide)
    inner = body if mix.experts is None else _bits(mix.experts, wide)
    lookup = shape.lookup * (_one(mix.lookup, True) if mix.lookup else head)
    dense = _bytes(shape.body * body + shape.embedding * head)
    experts = _bytes(shape.experts * inner)
    tables = _bytes(lookup + (0 if shape.tied else shape.embedding * table))
    return Rough(
        file=dense + experts + tables + shape.vocabulary * TOKEN,
        tower=_bytes(shape.tower * tower),
        dense=dense,
        experts=experts,
        active_experts=_bytes(shape.active_experts * inner),
        tables=tables,
        position=CELL * sum(cache.layers * cache.heads * (cache.key + cache.value) for cache in shape.caches),
        state=STATES * 4 * shape.state,
        work=4 * (CHUNK * ROW * shape.hidden + shape.vocabulary) + 4 * CONTEXT * max(c.key for c in shape.caches),
    )


def bits(quantisation: str) -> float:
    """Of a weight of the model's matrices, nominally. Raises as `rough`."""
    mix = _mix(quantisation)
    return _bits(mix.experts or mix.body, True)


def tower_bits(mmproj: str) -> float:
    """Of a weight of a vision tower, by its file's name."""
    return _one("Q8_0", True) if "Q8_0" in mmproj.upper() else 16.0


def _mix(quantisation: str) -> Mix:
    if quantisation not in MIXES:
        raise SettingsError(f"Nothing is known of the quantisation {quantisation}. Known are: {', '.join(MIXES)}.")
    return MIXES[quantisation]


def _bits(shares: Mapping[str, float], wide: bool) -> float:
    return sum(share * _one(name, wide) for name, share in shares.items())


def _one(name: str, wide: bool) -> float:
    """Bits of a weight in an encoding. `wide`: rows are a whole number of the K encodings' blocks."""
    encoding = get(name if wide else FALLBACKS.get(name, name))
    return 8 * encoding.block_bytes / encoding.block


def _bytes(count: float) -> int:
    return round(count / 8)
