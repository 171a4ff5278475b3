"""Positional reads of model files into memory of our own, by the caller or by a pool of threads."""

from __future__ import annotations

import errno
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from engine.address_space import raise_it
from engine.buffers import U8
from engine.cancel import Cancel, patiently
from engine.errors import BudgetError, ModelFileError
from engine.memory.raw_file import PAGE, NotAFileError, RawFile, open_raw

DROP_AFTER = 16
"""Direct reads after which the system is told to keep nothing of the file, whoever brought it there: some file systems
take them through their cache all the same."""


class ModelFile:
    """One file, open for reads at given offsets by any thread.

    Reads are explicit and never through a mapping: a mapped file that shrinks or whose disk goes away kills the
    process at the next touch, and its pages escape every memory budget.

    Without `keep_cached` the system keeps no copy of what is read: `read` gives it back piece by piece, and
    `read_pages` goes past the system's cache where the file system can do that.

    A file that is deleted, or that another takes the name of, goes on being read as it was. Every read, once it has its
    bytes, compares size and time of last change with what they were at opening, so that bytes from after a change are
    refused. Not seen are a change before opening, one that sets the time back, one so soon after another that the
    system's clock has not ticked in between, one through a mapping before the system writes it out, and one on another
    machine's disk before that tells. On Windows nobody can write to a file that is open here.
    """

    def __init__(self, path: Path, *, keep_cached: bool = True) -> None:
        self.path = path
        self._direct: RawFile | None = None
        self._direct_reads = 0
        try:
            raw = open_raw(path, cached=keep_cached)
            self._opened = raw.state()
            if not keep_cached:
                self._direct = _direct(path, raw)
        except NotAFileError as error:
            raise ModelFileError(f"{path} is {error}, not a file: choose the model's file.") from None
        except OSError as error:
            raise ModelFileError(f"Cannot open {path}: {_reason(error)}.") from error
        self._raw: RawFile | None = raw
        self._keep_cached = keep_cached

    @property
    def direct(self) -> bool:
        """Whether `read_pages` goes past the system's cache, as far as is known."""
        return self._direct is not None

    def read(self, into: U8, offset: int, tensor: str) -> None:
        """Fill `into`, uint8 [n] and contiguous, with the n bytes at `offset`.

        Raises ModelFileError, naming the tensor unless it is "", where the file ends early or has changed, or the disk
        refuses.
        """
        self._read(into.data, 0, offset, tensor, len(into))

    def read_pages(self, into: memoryview, offset: int, tensor: str, least: int) -> int:
        """Fill whole pages with those at `offset`: → the bytes that were read. At least the first `least` must be
        there; a file's last page may be short. `into` and `offset` lie on pages' boundaries. Raises as `read` does."""
        direct, raw = self._direct, self._raw
        if direct is None or raw is None:
            return self._read(into, 0, offset, tensor, least)
        done = 0
        try:
            while done < len(into) and done % PAGE == 0:
                count = direct.read_some(into[done:] if done else into, offset + done)
                if not count:
                    break
                done += count
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise self._failed(tensor, error) from error
            self._direct = None  # the file system cannot after all
        if done < len(into) and (done < least or offset + done < self._opened.size):
            return self._read(into, done, offset, tensor, least)
        self._direct_reads += 1
        if self._direct_reads % DROP_AFTER == 0:
            raw.drop_cached(0, self._opened.size)
        self._check(raw, tensor)
        return done

    def close(self) -> None:
        """Nothing can be read from now on. The system's file is closed when the last read that is under way returns."""
        self._raw = self._direct = None

    def _read(self, into: memoryview, done: int, offset: int, tensor: str, least: int) -> int:
        """Fill `into` from byte `done` on, at least up to `least`: → how far."""
        raw = self._raw
        if raw is None:
            raise ModelFileError(f"{self.path} is closed: open the model again.")
        start = done
        try:
            while done < len(into):
                count = raw.read_some(into[done:], offset + done)
                if count:
                    done += count
                elif done >= least:
                    break
                else:
                    self._check(raw, tensor)
                    raise ModelFileError(
                        f"{self.path} ends inside {_named(tensor)}, at byte {offset + done}: "
                        "the file is truncated or was changed while in use. Download it again."
                    )
        except OSError as error:
            raise self._failed(tensor, error) from error
        finally:
            if not self._keep_cached:
                raw.drop_cached(offset + start, done - start)
        self._check(raw, tensor)
        return done

    def _check(self, raw: RawFile, tensor: str) -> None:
        """Refuse what was just read where the file has changed: the system notes that before it writes. Where a disk
        hangs this may hang as a read does, so that it is for the thread that reads."""
        try:
            changed = raw.state() != self._opened
        except OSError as error:
            raise self._failed(tensor, error) from error
        if changed:
            raise ModelFileError(
                f"{self.path} was changed while in use, so that {_named(tensor)} can no longer be trusted: "
                "open the model again, or download it again."
            )

    def _failed(self, tensor: str, error: OSError) -> ModelFileError:
        return ModelFileError(
            f"Reading {_named(tensor)} from {self.path} failed: {_reason(error)}. "
            "Check the disk, or download the file again."
        )


class ModelFiles:
    """The files of a model, each opened when it is first asked for. For one thread. `cancel` breaks an opening that
    hangs."""

    def __init__(self, *, keep_cached: bool = True, cancel: Cancel | None = None) -> None:
        self._keep_cached = keep_cached
        self._cancel = cancel
        self._files: dict[Path, ModelFile] = {}

    def __getitem__(self, path: Path) -> ModelFile:
        """Raises ModelFileError where it cannot be opened, and `Cancelled`."""
        file = self._files.get(path)
        if file is None:
            file = patiently(lambda: ModelFile(path, keep_cached=self._keep_cached), self._cancel)
            self._files[path] = file
        return file

    def close(self) -> None:
        """A second call does nothing."""
        for file in self._files.values():
            file.close()


class Pages(Protocol):
    """What a pool reads from."""

    def read_pages(self, into: memoryview, offset: int, tensor: str, least: int) -> int: ...


class Pending:
    """A read that was handed to a pool. `done` once nothing writes to its memory any more, with the `error` if it
    failed."""

    __slots__ = ("_job", "_running", "done", "error")

    def __init__(self, file: Pages, offset: int, into: memoryview, tensor: str, least: int) -> None:
        self._job: tuple[Pages, int, memoryview, str, int] | None = (file, offset, into, tensor, least)
        self._running = False
        self.done = False
        self.error: BaseException | None = None


class ReadPool:
    """Threads that read, in the order in which they were asked. One thread alone asks and waits.

    They are daemons, and nobody waits for their end: a read that hangs for good keeps nothing but its own thread and
    the memory that it may still write to.
    """

    def __init__(self, threads: int) -> None:
        """Raises BudgetError where the system refuses so many."""
        self.threads = threads
        self.bytes_read = 0
        """Bytes of all reads that succeeded."""
        self._changed = threading.Condition()
        self._awaited: Pending | None = None
        self._closed = False
        self._jobs: deque[Pending] = deque()
        self._urgent: deque[Pending] = deque()
        # One token a job: C code that costs a fraction of a condition variable.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        try:
            for number in range(threads):
                threading.Thread(target=self._work, name=f"read-{number}", daemon=True).start()
        except RuntimeError as error:
            self.close()
            raise BudgetError(
                f"The system refused a thread for reading: {raise_it()}close other programs, or read with fewer than "
                f"{threads} at once."
            ) from error

    def submit(
        self, file: Pages, offset: int, into: memoryview, tensor: str, least: int, *, urgent: bool = False
    ) -> Pending:
        """Hand over a `ModelFile.read_pages`; an urgent one comes before all that still wait for a thread."""

        if self._closed:
            raise ModelFileError(f"Tensor {tensor} was asked for after the model was closed: open it again.")
        pending = Pending(file, offset, into, tensor, least)
        (self._urgent if urgent else self._jobs).append(pending)
        self._tokens.put(True)
        return pending

    def abandon(self, reads: Iterable[Pending]) -> None:
        """Nobody wants these any more: those that no thread has begun are done at once and write nothing."""
        with self._changed:
            for pending in reads:
                if not pending._running:
                    pending.done, pending._job = True, None

    def wait(self, pending: Pending, broken: Callable[[], bool]) -> bool:
        """Wait until it is done, → True, or until `broken`, which is looked at after every `wake`, → False."""
        with self._changed:
            self._awaited = pending
            while not pending.done:
                if broken():
                    return False
                self._changed.wait()
            return True

    def wake(self) -> None:
        """Make `wait` look again. For any thread."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of all reads that no thread has begun, and of the threads. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with self._changed:
            self.abandon([*self._jobs, *self._urgent])
        for _ in range(self.threads):
            self._tokens.put(False)

    def _work(self) -> None:
        while self._tokens.get():
            self._run_next()

    def _run_next(self) -> None:
        with self._changed:
            pending = (self._urgent or self._jobs).popleft()
            job, pending._job = pending._job, None
            if job is None:
                return
            pending._running = True
        nbytes, failure = 0, None
        try:
            file, offset, into, tensor, least = job
            nbytes = file.read_pages(into, offset, tensor, least)
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # which would keep the memory
            failure = error
        del job, into
        with self._changed:
            self.bytes_read += nbytes
            pending.error, pending.done = failure, True
            if self._awaited is pending:
                self._changed.notify_all()


def _direct(path: Path, raw: RawFile) -> RawFile | None:
    """The same file, past the system's cache; `None` where the file system cannot, or the name has changed hands."""
    try:
        direct = open_raw(path, cached=False, direct=True)
        return direct if direct.identity() == raw.identity() else None
    except (OSError, NotAFileError):
        return None


def _named(tensor: str) -> str:
    return f"tensor {tensor}" if tensor else "one of its blocks"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
