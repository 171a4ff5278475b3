"""What the person is told while things are set up: numbered steps and how far each is, on standard error."""

from __future__ import annotations

import errno
import sys


class SetupError(Exception):
    """The set-up cannot go on. The message is one sentence that says why and what to do."""


class NoRoom(SetupError):
    """The disk is full, or too full to begin."""


class Report:
    """Numbers `total` steps. On a terminal, progress within a step overwrites its own line."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._step = 0
        self._live = sys.stderr.isatty()
        self._pending = False

    def step(self, text: str) -> None:
        self._step += 1
        self.say(f"Step {self._step} of {self._total}: {text}")

    def note(self, text: str) -> None:
        self.say(f"  {text}")

    def progress(self, text: str) -> None:
        """Show how far the step is, where the line can be overwritten by the next one."""
        if self._live:
            sys.stderr.write(f"\r\x1b[K  {text}")
            sys.stderr.flush()
            self._pending = True

    def say(self, text: str) -> None:
        if self._pending:
            sys.stderr.write("\r\x1b[K")
            self._pending = False
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def explain(error: OSError) -> SetupError:
    """The sentence for what the operating system refused."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoom(f"There is no room left on the disk{where}: free some space and start again.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return SetupError(
            f"The system does not allow writing here{where}: move the checkout to a folder that is yours, "
            "or make this one writable, and start again."
        )
    return SetupError(f"The system refused: {error.strerror or error}{where}. Put that right and start again.")
