"""What lends a model's weights while it runs, made and let go as a whole."""

from __future__ import annotations

from engine.cancel import Cancel
from engine.memory.arena import Arena
from engine.memory.meter import Meter
from engine.memory.planner import Placement
from engine.memory.reader import ModelFiles, ReadPool
from engine.memory.slabs import Slabs
from engine.memory.store import WeightStore
from engine.memory.stream import Counts, Stream


class Streaming:
    """The files, threads and memory through which weights come from disk, as a placement has them.

    All but `stop` is for one thread at a time.
    """

    def __init__(self, placement: Placement, meter: Meter, cancel: Cancel | None = None) -> None:
        """`cancel` breaks the opening of files. Raises BudgetError where the memory is not there."""
        self._placement, self._meter = placement, meter
        meter.add("arena", placement.arena)
        arena = Arena(placement.arena)
        self._files = ModelFiles(keep_cached=False, cancel=cancel)
        self._pool = ReadPool(placement.io_threads)
        self._slabs: Slabs | None = None
        self.stream = Stream(
            self._files, self._pool, arena, block_bytes=placement.block_bytes, block_rows=placement.block_rows
        )

    def foresee(self, store: WeightStore) -> None:
        """Tell the stream in which order the model that was built from `store` asks, and make room for experts.

        Raises BudgetError where the memory is not there.
        """
        lent = store.lent
        order = [
            [lent.get((weight.tensor, weight.first, weight.rows)) for weight in use] for use in self._placement.order
        ]
        keys = [tuple(rows for rows in use if rows is not None) for use in order]
        self.stream.expect(keys)
        if self._placement.slab:
            mixtures = [key for key in keys if len(key) == 3 and key[0].matrices is not None]
            rooms = {key: self.stream.slab_bytes(*key) for key in mixtures}
            count = max(key[0].matrices or 0 for key in mixtures)
            self._slabs = Slabs(self._placement.slab, count, rooms)
            self._meter.add("experts", self._slabs.nbytes)
            self.stream.keep_experts(self._slabs)

    def count(self) -> Counts:
        """What has been done so far."""
        return self.stream.counts

    def begin(self, cancel: Cancel | None) -> None:
        """The next waits are broken by `cancel`."""
        self.stream.cancel = cancel

    def stop(self) -> None:
        """Break what is waited for, now and from now on. For any thread."""
        self.stream.stop()

    def close(self) -> None:
        """Let go of files, threads and memory. A second call does nothing."""
        self.stream.close()
        self._pool.close()
        self._files.close()
