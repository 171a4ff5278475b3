"""Programs that import or move models until they are killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from registry import copying, moving
from registry.importing import import_model
from registry.library import Library
from registry.progress import Progress


def _say(sign: str, seconds: float) -> None:
    sys.stdout.write(sign)
    sys.stdout.flush()
    time.sleep(seconds)


def _copied(progress: Progress) -> None:
    _say(".", 0.002)


class _Slow(moving._Move):
    """It says what it deletes, too."""

    def _clear(self, copied: dict[str, tuple[int, int]]) -> None:
        for name, stamp in copied.items():
            super()._clear({name: stamp})
            _say("-", 0.02)


if __name__ == "__main__":
    copying.CHUNK = 1 << 14  # type: ignore[misc]
    moving._Move = _Slow  # type: ignore[misc]
    what, *paths = sys.argv[1:]
    if what == "import":
        import_model(paths[0], Library(Path(paths[1])), "copy", _copied)
    else:
        source, target, settings = map(Path, paths)
        moving.move_library(source, target, _copied, settings=settings)
