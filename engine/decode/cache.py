"""The cache of one conversation: what every layer stored, and the tokens that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decode.prompt import Prompt
from engine.decode.states import SNAPSHOTS, States, state_bytes
from engine.kernels.kv import holds, positions, row_bytes
from engine.kernels.ops import CacheSpec, LayerCache, LayerSpec, Ops
from engine.memory.meter import Meter, require_free


def position_bytes(specs: Sequence[LayerSpec], kind: str) -> int:
    """Bytes of all layers' keys and values at one position. Raises SettingsError as `row_bytes` does."""
    return sum(spec.n_kv_heads * sum(row_bytes(spec, kind)) for spec in specs if isinstance(spec, CacheSpec))


def cache_bytes(specs: Sequence[LayerSpec], capacity: int, kind: str, *, snapshots: int = SNAPSHOTS) -> int:
    """Bytes of memory for `capacity` positions, which are kept by whole chunks, and for recurrent states with so many
    copies of them."""
    return positions(capacity) * position_bytes(specs, kind) + (1 + snapshots) * state_bytes(specs)


class KVCache:
    """Room for `capacity` positions. Position i of every layer belongs to `tokens[i]`; rows past them are garbage.

    A forward pass writes rows from `len(tokens)` on; only `extend`, called when the pass has succeeded, makes them
    count. So keys and values are as they were when a pass has been cut short. Recurrent states are not: `restore` then
    drops the positions that they have lost. `snapshots` copies of them are kept, of positions that `keep_state` names.
    """

    def __init__(
        self,
        ops: Ops,
        specs: Sequence[LayerSpec],
        capacity: int,
        kind: str,
        meter: Meter,
        *,
        snapshots: int = SNAPSHOTS,
    ) -> None:
        """Raises BudgetError where the memory is not there, SettingsError where `kind` cannot hold such widths."""
        require_free(
            cache_bytes(specs, capacity, kind, snapshots=snapshots),
            f"A context of {capacity} tokens",
            f"choose a smaller context{_smaller(specs, kind)}, or close other programs",
        )
        self.capacity = capacity
        self.layers: tuple[LayerCache, ...] = tuple(ops.cache(spec, capacity, kind) for spec in specs)
        self.nbytes = sum(layer.nbytes for layer in self.layers) + snapshots * state_bytes(specs)
        self._states = States(ops, self.layers, snapshots)
        self._tokens: list[int] = []
        self._meter = meter
        meter.add("kv", self.nbytes)

    def __len__(self) -> int:
        """Positions that are filled."""
        return len(self._tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self._tokens)

    @property
    def recurrent(self) -> bool:
        """Whether there are recurrent states, so that not every length can be gone back to."""
        return bool(self._states)

    def keep_prefix(self, prompt: Prompt) -> int:
        """Keep what `prompt` shares with the cached tokens from the start, drop the rest: → positions kept.

        The last of its tokens is never among them, since its logits have to be computed.
        """
        shared = 0
        for cached, token in zip(self._tokens, prompt.tokens[:-1], strict=False):
            if cached != token:
                break
            shared += 1
        return self.truncate(prompt.whole(shared))

    def truncate(self, length: int) -> int:
        """Forget all positions from `length` on, and those before it that recurrent states cannot go back to: → how
        many are kept."""
        kept = self._states.back(min(length, len(self._tokens)))
        del self._tokens[kept:]
        return kept

    def extend(self, tokens: Sequence[int]) -> None:
        """The next positions have been computed for these tokens."""
        assert len(self._tokens) + len(tokens) <= self.capacity
        self._tokens.extend(tokens)
        self._states.moved(len(self._tokens))

    def keep_state(self) -> None:
        """Keep a copy of the recurrent states, so that the present length can be gone back to later on."""
        self._states.keep()

    def restore(self) -> None:
        """A pass was cut short, or computed other positions than the next: forget those that recurrent states cannot
        vouch for any more."""
        self._states.moved(None)
        self.truncate(len(self._tokens))

    def close(self) -> None:
        """Let the memory go. A second call does nothing."""
        self._meter.add("kv", -self.nbytes)
        self._states.close()
        self.layers, self.nbytes = (), 0
        self._tokens.clear()


def _smaller(specs: Sequence[LayerSpec], kind: str) -> str:
    """The kind of cache that takes less, as an alternative in a sentence."""
    if kind == "f32":
        return " or the f16 cache"
    if kind == "f16" and all(holds(spec, "q8_0") for spec in specs if isinstance(spec, CacheSpec)):
        return " or the q8_0 cache"
    return ""
