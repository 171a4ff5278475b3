"""The pool of threads, the library that runs on it, and the recording of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakSet

from engine.address_space import raise_it
from engine.cores import default_threads
from engine.errors import BudgetError, NumericsError, SettingsError
from engine.kernels.native import library
from engine.kernels.native.recording import LONGEST, Program, Recording
from engine.kernels.native.tensors import Workspace, no_memory
from engine.kernels.ops import Pass, Tensor

MAX_THREADS = 256
NO_MEMORY, OVERFLOW = 1, 2


class Device:
    """What all native operations share.

    Raises SettingsError for a thread count or an instruction set that cannot be.
    """

    def __init__(self, threads: int | None = None, isa: str | None = None) -> None:
        self._pool: int | None = None
        threads = default_threads() if threads is None else threads
        if not 1 <= threads <= MAX_THREADS:
            raise SettingsError(f"The number of threads is {threads}; it must be between 1 and {MAX_THREADS}.")
        self.isa, self._lib = library.load(isa)
        self.name, self.threads = f"native ({self.isa})", threads
        self._workspace = Workspace()
        self._workspaces = WeakSet([self._workspace])
        self._recording: Recording | None = None
        self._lends = False
        """Whether there are weights that are lent, whose windows lie somewhere else each time."""
        self._pool = self._lib.ms_pool_new(threads)
        if not self._pool:
            raise BudgetError(
                f"The system refused to start {threads} threads: {raise_it()}ask for fewer with --threads."
            )

    def close(self) -> None:
        if self._pool:
            self._lib.ms_pool_free(self._pool)
            self._pool = None

    def __del__(self) -> None:
        self.close()

    @property
    def nbytes(self) -> int:
        """Bytes held for activations, and for what the library works out beside them."""
        scratch: int = self._lib.ms_pool_bytes(self._pool) if self._pool else 0
        return scratch + sum(workspace.nbytes for workspace in self._workspaces)

    def recorded(self, forward: Pass) -> Pass:
        if self._lends:
            return forward
        programs: dict[int, Program] = {}

        def run(tokens: Sequence[int], start: int) -> Tensor:
            if len(tokens) > LONGEST:
                return forward(tokens, start)
            program = programs.get(len(tokens))
            if program is None:
                program = programs[len(tokens)] = self._record(forward, tokens, start)
            else:
                self._check(program.run(self._lib, self._pool, tokens, start))
            return program.output

        return run

    def _record(self, forward: Pass, tokens: Sequence[int], start: int) -> Program:
        """Run the pass and keep its calls."""
        own, self._recording = self._workspace, Recording()
        try:
            self._workspace = self._recording.workspace
            self._workspaces.add(self._workspace)
            return self._recording.finish(forward(tokens, start))
        finally:
            self._workspace, self._recording = own, None

    def _keep(self, *used: object) -> None:
        """Let what a recorded call points at live as long as the recording."""
        if self._recording is not None:
            self._recording.kept += used

    def _call(self, function: str, *arguments: int | float | None) -> None:
        self._check(getattr(self._lib, function)(self._pool, *arguments))
        if self._recording is not None:
            self._recording.calls.append(library.recorded_call(function, arguments))

    def _check(self, status: int) -> None:
        if status == OVERFLOW:
            raise NumericsError(
                "A key or value is too large for the key-value cache's number format; load the model with an f32 cache."
            )
        if status == NO_MEMORY:
            raise no_memory()
        assert status == 0, status
