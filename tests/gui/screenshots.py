"""Renders every state of the window, light and dark, at one and two pixels a point:

    python -m tests.gui.screenshots FOLDER [PART OF A NAME …]

The pictures are for looking at: no test compares them. Only the engine is missing; what it would say is said by hand.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.gui.rendering import end, grabbed, run, schemes


def render(folder: Path, parts: Sequence[str], scale: str) -> int:
    from app.application import make_application, open_settings
    from app.bridge import Bridge
    from app.look import Appearance
    from app.window import Window
    from tests.gui.picture_states import picture_states
    from tests.gui.silent_engine import load_silent
    from tests.gui.states import settle, states

    application = make_application(["screenshots"])
    appearance = Appearance(application)
    with tempfile.TemporaryDirectory() as home:
        for scheme in schemes(application):
            for name, arrange in (*states(), *picture_states()):
                if parts and not any(part in name for part in parts):
                    continue
                window = Window(Bridge(load_silent), appearance, open_settings(Path(home) / "window.ini"))
                window.resize(960, 720)
                window.show()
                arrange(window)
                settle(application.processEvents, 0.05)
                grabbed(window).save(str(folder / f"{name}-{scheme}-{scale}x.png"))
                end(window)
    return 0


if __name__ == "__main__":
    sys.exit(run("tests.gui.screenshots", render, sys.argv[1:]))
