"""The program as it is started, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MILLSTREAM_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def open_and_close(when: str, model: Path | str) -> str:
    """Code that opens the window and closes it as soon as the chat is in a state."""
    return f"""
        import sys, time
        import app.bridge, app.window
        from PySide6.QtCore import QTimer

        class Closing(app.window.Window):
            def __init__(self, *services):
                super().__init__(*services)
                self.chat.state_changed.connect(lambda state: state == {when!r} and QTimer.singleShot(0, self.close))

        app.window.Window = Closing
        sys.exit(app.window.open_window({str(model)!r}))
    """


def test_it_opens_tells_what_is_wrong_with_a_model_and_closes_without_a_word(folder: Path) -> None:
    broken = folder / "broken.gguf"
    broken.write_bytes(b"GGUF")
    done = run(open_and_close("failed", broken), folder)
    assert (done.returncode, done.stderr.replace(OFFSCREEN_NOISE, ""), done.stdout) == (0, "", "")
    assert (folder / "window.ini").is_file()
    assert "broken.gguf" in (folder / "logs" / "millstream.log").read_text(encoding="utf-8")


def test_it_closes_in_mid_load_without_a_word(folder: Path, starter: Path) -> None:
    done = run(open_and_close("loading", starter), folder)
    assert (done.returncode, done.stderr.replace(OFFSCREEN_NOISE, ""), done.stdout) == (0, "", "")


def test_a_thread_that_does_not_listen_is_left_behind_and_the_log_says_so(folder: Path) -> None:
    code = open_and_close("fetching", "any").replace(
        "class Closing",
        """
        from app.requests import Fetching
        def deaf(model, report, cancel):
            report(Fetching("Fetching", 0, 0))
            time.sleep(600)

        app.window.load_local = deaf
        app.bridge.Bridge.close.__defaults__ = (0.1,)

        class Closing""".lstrip(),
    )
    done = run(code, folder)
    assert done.returncode == 0, done.stderr
    assert "did not end in time" in (folder / "logs" / "millstream.log").read_text(encoding="utf-8")


def test_importing_the_window_brings_no_tensor_library(folder: Path) -> None:
    done = run("import sys, app.window; print({'numpy', 'torch', 'tokenizers'} & sys.modules.keys())", folder)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")
def test_the_binding_gives_back_as_many_references_to_none_as_it_takes(qtbot: QtBot) -> None:
    """PySide6 6.12.0 took one too many at each call, and Python before 3.12 ended with "deallocating None"."""
    thing = QObject()
    before = sys.getrefcount(None)
    for _ in range(1000):
        thing.setObjectName("mill")
    assert sys.getrefcount(None) > before - 500


OFFSCREEN_NOISE = "This plugin does not support propagateSizeHints()\n"
