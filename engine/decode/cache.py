"""The key-value cache of one conversation: what every layer stored, and the tokens that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decode.prompt import Prompt
from engine.kernels.kv import holds, positions, row_bytes
from engine.kernels.ops import CacheSpec, LayerCache, Ops
from engine.memory.meter import Meter, require_free


def position_bytes(specs: Sequence[CacheSpec], kind: str) -> int:
    """Bytes of all layers' keys and values at one position. Raises SettingsError as `row_bytes` does."""
    return sum(spec.n_kv_heads * sum(row_bytes(spec, kind)) for spec in specs)


def cache_bytes(specs: Sequence[CacheSpec], capacity: int, kind: str) -> int:
    """Bytes of memory for `capacity` positions, which are kept by whole chunks."""
    return positions(capacity) * position_bytes(specs, kind)


class KVCache:
    """Room for `capacity` positions. Position i of every layer belongs to `tokens[i]`; rows past them are garbage.

    A forward pass writes rows from `len(tokens)` on; only `extend`, called when the pass has succeeded, makes them
    count. So a pass that was cancelled or failed half-way leaves the cache as it was.
    """

    def __init__(self, ops: Ops, specs: Sequence[CacheSpec], capacity: int, kind: str, meter: Meter) -> None:
        """Raises BudgetError where the memory is not there, SettingsError where `kind` cannot hold such widths."""
        require_free(
            cache_bytes(specs, capacity, kind),
            f"A context of {capacity} tokens",
            f"choose a smaller context{_smaller(specs, kind)}, or close other programs",
        )
        self.capacity = capacity
        self.layers: tuple[LayerCache, ...] = tuple(ops.cache(spec, capacity, kind) for spec in specs)
        self.nbytes = sum(layer.nbytes for layer in self.layers)
        self._tokens: list[int] = []
        self._meter = meter
        meter.add("kv", self.nbytes)

    def __len__(self) -> int:
        """Positions that are filled."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self._tokens)

    def keep_prefix(self, prompt: Prompt) -> int:
        """Keep what `prompt` shares with the cached tokens from the start, drop the rest: → positions kept.

        The last of its tokens is never among them, since its logits have to be computed.
        """
        kept = 0
        for cached, token in zip(self._tokens, prompt.tokens[:-1], strict=False):
            if cached != token:
                break
            kept += 1
        kept = prompt.whole(kept)
        self.truncate(kept)
        return kept

    def truncate(self, length: int) -> None:
        """Forget all positions from `length` on."""
        del self._tokens[length:]

    def extend(self, tokens: Sequence[int]) -> None:
        """The next positions have been computed for these tokens."""
        assert len(self._tokens) + len(tokens) <= self.capacity
        self._tokens.extend(tokens)

    def close(self) -> None:
        """Let the memory go. A second call does nothing."""
        self._meter.add("kv", -self.nbytes)
        self.layers, self.nbytes = (), 0
        self._tokens.clear()


def _smaller(specs: Sequence[CacheSpec], kind: str) -> str:
    """The kind of cache that takes less, as an alternative in a sentence."""
    if kind == "f32":
        return " or the f16 cache"
    if kind == "f16" and all(holds(spec, "q8_0") for spec in specs):
        return " or the q8_0 cache"
    return ""
