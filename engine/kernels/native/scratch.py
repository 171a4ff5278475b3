"""What the pool's scratch memory takes, counted without running: the sizes that the C files ask `pool_scratch` for.

Each function names the file whose arithmetic it follows. Where a size depends on the processor or on what a router
chooses, it is the largest that can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from engine import weights
from engine.kernels.ops import CacheSpec
from engine.kernels.state import StateSpec

STRIP: Final = 8
"""Weight rows of a strip against few activation rows (linear.h)."""
TILE: Final = 16
"""Against many, on processors with AVX-512; half of it on others."""
TILE_FROM: Final = 4
"""Activation rows that are many (quantise.h)."""
TOKENS: Final = 8
"""Activation rows that share a pass over a tile."""
TOGETHER_FROM: Final = 8
"""Rows of an expert's group that are quantised together (experts.c)."""
LARGEST_GRAIN, GRAINS_PER_THREAD = 16, 4
CHUNK: Final = 64
QUERIES: Final = 4
ATTENTION_ROWS, HEADS, HELD, PARTS_BYTES = 16, 16, 128, 16 << 20
"""Of attention.c."""
PARTS: Final = 3
"""The slot of attention's parts."""

NO_BYTES, RUN_BYTES, OCTET_BYTES = 0, 1, 2
OCTETS: Final = frozenset(("Q4_0", "Q4_1", "IQ4_NL", "MXFP4"))
"""Encodings whose few rows are multiplied by octets of bytes."""
WORDS: Final = frozenset(("Q8_0", "TQ1_0"))
"""Packed encodings that are never multiplied by bytes."""


@dataclass(frozen=True)
class Shape:
    """So many matrices [rows, columns] in one encoding."""

    encoding: str
    rows: int
    columns: int
    matrices: int = 1

    @cached_property
    def packed(self) -> bool:
        return weights.is_packed(weights.get(self.encoding))

    @cached_property
    def bytes_kind(self) -> int:
        """`strip_bytes` of linear.c."""
        if not self.packed or self.encoding in WORDS:
            return NO_BYTES
        return OCTET_BYTES if self.encoding in OCTETS else RUN_BYTES


class Scratch:
    """The slots of a pool of so many threads, each as large as the largest that was asked for."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._slots: dict[int, int] = {}
        self._known: set[tuple[object, ...]] = set()
        self._row_bytes: set[int] = set()

    @property
    def nbytes(self) -> int:
        return self.nbytes_after(0)

    def nbytes_after(self, positions: int) -> int:
        """The same where single rows have come so late: theirs alone take more, the later they come."""
        parts = max((_parts(row_bytes, positions) for row_bytes in self._row_bytes), default=0)
        return sum(self._slots.values()) + max(parts - self._slots.get(PARTS, 0), 0)

    def frozen(self) -> Scratch:
        """As it is now."""
        other = Scratch(self._threads)
        other._slots, other._row_bytes = dict(self._slots), set(self._row_bytes)
        return other

    def _again(self, *asked: object) -> bool:
        """Whether the same was asked for before, as one layer after the other does."""
        if asked in self._known:
            return True
        self._known.add(asked)
        return False

    def _take(self, slot: int, nbytes: int) -> None:
        self._slots[slot] = max(self._slots.get(slot, 0), nbytes)

    def linear(self, n: int, shapes: Sequence[Shape], *, gated: bool = False) -> None:
        """linear.c, `run`: up to three weights of the same columns against n rows."""
        if self._again("linear", n, gated, *shapes):
            return
        columns, width = shapes[0].columns, STRIP if n < TILE_FROM else TILE
        if any(shape.packed for shape in shapes):
            kinds = [shape.bytes_kind for shape in shapes] if n < TILE_FROM else []
            self._take(0, _activations(n, columns, kinds))
        items = sum(-(-shape.rows // width) for shape in (shapes[:1] if gated else shapes))
        result = _rounded(2 * self._grain(n, items) * n * width * 4)
        self._take(1, self._threads * (_strip(columns) + result))

    def heads(self, n: int, shape: Shape, *, transposed: bool) -> None:
        """heads.c, `ms_head_linears`."""
        if transposed:
            self._take(1, self._threads * shape.rows * shape.columns * 4)
            return
        width = STRIP if n < TILE_FROM else TILE
        kinds = [shape.bytes_kind] if n < TILE_FROM else []
        packed = _rounded(_activations(n, shape.columns, kinds)) if shape.packed else 0
        self._take(0, _rounded(shape.matrices * n * shape.columns * 4) + shape.matrices * packed)
        self._take(1, self._threads * (_strip(shape.columns) + _rounded(n * width * 4)))

    def route(self, n_experts: int, groups: int) -> None:
        """route.c, `ms_route`."""
        self._take(0, self._threads * _rounded((2 * n_experts + groups) * 4 + n_experts + groups))

    def experts(self, n: int, k: int, gate: Shape, up: Shape, down: Shape) -> None:
        """experts.c, `ms_experts`, whichever experts were chosen."""
        if self._again("experts", n, k, gate, up, down):
            return
        pairs, count = n * k, gate.matrices
        self._take(0, min(pairs, count) * 32 + (count + 3 * pairs) * 4)
        self._take(3, pairs * gate.rows * 4)
        for by_token, shapes in ((True, (gate, up)), (False, (down,))):
            columns = shapes[0].columns
            self._take(1, _group_inputs(n, k, count, columns, shapes, by_token=by_token))
            grain = LARGEST_GRAIN if n < TILE_FROM else 1
            self._take(2, self._threads * (_strip(columns) + 2 * grain * n * TILE * 4))

    def attention(self, n: int, start: int, n_heads: int, spec: CacheSpec) -> None:
        """attention.c, `ms_attention` of n rows at positions `start …`."""
        if self._again("attention", n, start, n_heads, spec):
            return
        group = n_heads // spec.n_kv_heads
        part = -(-(2 + spec.value_dim) // 16) * 16
        heads = -(-group // -(-group // HEADS))
        rows = min(HELD // heads, ATTENTION_ROWS)
        values = 0 if spec.latent else spec.value_dim
        floats = CHUNK * (spec.key_dim + values) + QUERIES * part + rows * heads * (spec.key_dim + part)
        self._take(2, self._threads * _rounded(floats * 4))
        if n == 1:
            row_bytes = n_heads * part * 4
            self._row_bytes.add(row_bytes)
            self._take(PARTS, _parts(row_bytes, start + n))

    def delta_rule(self, spec: StateSpec) -> None:
        """recurrent.c, `ms_delta_rule`."""
        self._take(0, self._threads * 2 * spec.key_dim * 4)

    def _grain(self, n: int, items: int) -> int:
        """`strip_grain` of linear.c."""
        if n >= TILE_FROM:
            return 1
        return min(max(items // (GRAINS_PER_THREAD * self._threads), 1), LARGEST_GRAIN)


def _group_inputs(n: int, k: int, count: int, columns: int, shapes: Sequence[Shape], *, by_token: bool) -> int:
    """`make_inputs` of experts.c. Pairs of small groups take `alone` bytes each, those of large ones `together`, by
    groups rounded up to whole passes; the sum is greatest where one of the two runs out, or the experts do."""
    pairs = n * k
    large_possible = n >= TOGETHER_FROM

    def large_rows(rows: int) -> int:
        return rows + (TOKENS - 1) * min(count, rows // TOGETHER_FROM) if large_possible else 0

    total = 64
    if any(shape.packed for shape in shapes):
        alone = _rounded(_activations(1, columns, [shape.bytes_kind for shape in shapes]))
        together = _activations(TOKENS, columns, []) // TOKENS
        if by_token:
            total += n * alone + large_rows(pairs) * together
        else:
            small_most = min(pairs, (TOGETHER_FROM - 1) * count) if large_possible else pairs
            ends = {0, small_most, min(max(pairs - TOGETHER_FROM * count, 0), small_most)}
            total += max(small * alone + large_rows(pairs - small) * together for small in ends)
    if by_token and not all(shape.packed for shape in shapes):
        total += large_rows(pairs) * columns * 4
    return total


def _parts(row_bytes: int, positions: int) -> int:
    """Of attention.c: what one row keeps of each run of so many positions that it is compared with."""
    return (max(1, min(PARTS_BYTES // row_bytes, -(-positions // CHUNK))) + 1) * row_bytes


def _activations(n: int, columns: int, kinds: Sequence[int]) -> int:
    """`activations_size` of quantise.c."""
    runs = columns // 32
    if n >= TILE_FROM:
        n = -(-n // TOKENS) * TOKENS
    each = columns * 2 + (runs + 8) * 8 + runs * 8
    if any(kinds):
        each += runs * 64
    if OCTET_BYTES in kinds:
        each += (runs // 8 + 1) * 512
    return n * each


def _strip(columns: int) -> int:
    """`strip_scratch` of linear.c."""
    return _rounded(columns * max(TILE * 5 // 2, STRIP * 4))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
