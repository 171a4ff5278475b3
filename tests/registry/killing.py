"""Programs that import or move models until they are killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from registry.importing import import_model
from registry.library import Library
from registry.moving import move_library
from registry.progress import Progress


def _slowly(progress: Progress) -> None:
    sys.stdout.write(".")
    sys.stdout.flush()
    time.sleep(0.002)


if __name__ == "__main__":
    import registry.copying

    registry.copying.CHUNK = 1 << 14  # type: ignore[misc]
    what, *paths = sys.argv[1:]
    if what == "import":
        import_model(paths[0], Library(Path(paths[1])), "copy", _slowly)
    else:
        source, target, settings = map(Path, paths)
        move_library(source, target, _slowly, settings=settings)
    sys.stdout.write("done")
