"""Renders every state of the window, light and dark, at one and two pixels a point:

    python -m tests.gui.screenshots FOLDER

The pictures are for looking at: no test compares them. Only the engine is missing; what it would say is said by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SCALES = ("1", "2")

ANSWER = (
    "A water mill is a machine that takes its power from running water. The water turns a wheel, the wheel turns a "
    "shaft, and the shaft drives whatever stands inside: most often a pair of stones that grind grain into flour.\n\n"
    "There are three usual kinds of wheel:\n"
    "1. Undershot: the stream pushes the lowest paddles. Simple, and weak.\n"
    "2. Breastshot: the water meets the wheel at the height of its axle.\n"
    "3. Overshot: the water falls onto the top and its weight does the work. The strongest of the three.\n\n"
    "Mills also sawed timber, fulled cloth and worked the bellows of forges."
)


def main(arguments: Sequence[str]) -> int:
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for scale in SCALES:
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": scale}
        command = [sys.executable, "-m", "tests.gui.screenshots", str(folder), scale]
        subprocess.run(command, env=environment, check=True)
    return 0


def render(folder: Path, scale: str) -> int:
    from PySide6.QtCore import QCoreApplication, QEvent, Qt

    from app.application import make_application, open_settings
    from app.bridge import Bridge
    from app.look import Appearance
    from app.window import Window
    from tests.gui.silent_engine import load_silent

    application = make_application(["screenshots"])
    appearance = Appearance(application)
    with tempfile.TemporaryDirectory() as home:
        for dark in (False, True):
            scheme = Qt.ColorScheme.Dark if dark else Qt.ColorScheme.Light
            application.styleHints().colorSchemeChanged.emit(scheme)
            for name, arrange in states():
                window = Window(Bridge(load_silent), appearance, open_settings(Path(home) / "window.ini"))
                window.resize(960, 720)
                window.show()
                arrange(window)
                settle(application.processEvents, 0.05)
                window.grab().save(str(folder / f"{name}-{'dark' if dark else 'light'}-{scale}x.png"))
                window.close()
                window.deleteLater()
                QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return 0


def settle(process: Callable[[], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        process()
        time.sleep(0.002)


def states() -> Iterator[tuple[str, Callable]]:
    from PySide6.QtWidgets import QApplication

    from app.requests import Answer, AnswerFailed, Fetching, LoadCancelled, LoadFailed, Loading
    from engine.types import Finished, PrefillProgress, Reasoning, Text, Timings, Usage

    def pump(seconds: float = 0.05) -> None:
        settle(QApplication.processEvents, seconds)

    def say(window, notice) -> None:
        window.bridge.notice.emit(notice)

    def ready(window) -> None:
        window.chat.load("silent")
        pump(0.2)

    def end(window, reason="stop", tokens=148) -> None:
        usage, timings = Usage(412, 380, tokens), Timings(0.31, 4.2, 0.33, 103.0, 35.2)
        say(window, Answer(window.chat.session.last_request_id, Finished(reason, usage, timings)))

    def ask(window, prompt, answer="") -> None:
        if window.chat.state != "ready":
            ready(window)
        window.composer.draft.setPlainText(prompt)
        window.composer.send_button.click()
        if answer:
            say(window, Answer(window.chat.session.last_request_id, Text(answer)))
        pump()

    def no_model(window) -> None:
        window.chat.load("starter")
        pump(0.2)
        say(window, LoadCancelled())

    def fetching(window) -> None:
        window.chat.load("wait")
        say(window, Fetching("Fetching the starter model", 61_000_000, 191_000_000))

    def loading(window) -> None:
        window.chat.load("wait")
        say(window, Loading("Reading weights", 64_000_000, 98_000_000))
        window.composer.draft.setPlainText("How does a mill")

    def load_failed(window) -> None:
        window.chat.load("wait")
        say(
            window,
            LoadFailed(
                "The starter model could not be fetched from the package index that pip is set to use: it could not be "
                "reached. Check the network connection and `pip config list`, and try again."
            ),
        )

    def prefill(window) -> None:
        ask(window, "What is a water mill?")
        say(window, Answer(window.chat.session.last_request_id, PrefillProgress(512, 1400, 0)))
        pump(0.6)

    def thinking(window) -> None:
        ask(window, "What is a water mill?")
        say(window, Answer(window.chat.session.last_request_id, Reasoning("Let me see")))
        pump(0.6)

    def streaming(window) -> None:
        ask(window, "What is a water mill?")
        for word in ANSWER[:420].split(" "):
            say(window, Answer(window.chat.session.last_request_id, Text(word + " ")))
            pump(0.004)

    def finished(window) -> None:
        ask(window, "What is a water mill?", ANSWER)
        end(window)

    def conversation(window) -> None:
        finished(window)
        ask(
            window, "And what is the difference between\na mill race and a mill pond?", "A mill pond stores water. " * 9
        )
        end(window)
        ask(window, "Thanks!", "You are welcome.")
        end(window, tokens=4)

    def scrolled(window) -> None:
        conversation(window)
        bar = window.conversation.verticalScrollBar()
        bar.setValue(bar.maximum() // 2)

    def stopped(window) -> None:
        ask(window, "What is a water mill?", ANSWER[:210])
        end(window, "cancelled", 43)

    def context_full(window) -> None:
        finished(window)
        ask(window, "Now read this whole book: …")
        say(
            window,
            AnswerFailed(
                window.chat.session.last_request_id,
                "The prompt has 9120 tokens, but the context holds 8192: shorten it, or load the model with a larger "
                "context (SmolLM2 135M Instruct allows 8192).",
                True,
            ),
        )

    def answer_failed(window) -> None:
        ask(window, "What is a water mill?", ANSWER[:120])
        say(
            window,
            AnswerFailed(
                window.chat.session.last_request_id,
                "Something went wrong inside Millstream. Trying again may help; what happened stands in "
                "/home/ada/.local/state/millstream/log/millstream.log.",
            ),
        )

    def nearly_full(window) -> None:
        finished(window)
        window.composer.show_context(7100, 8192)

    def long_draft(window) -> None:
        ready(window)
        window.composer.draft.setPlainText("\n".join(f"Line {n} of a long message" for n in range(1, 13)))

    def narrow(window) -> None:
        window.resize(640, 560)
        conversation(window)

    def smallest(window) -> None:
        window.resize(window.minimumSize())
        ready(window)

    def smallest_finished(window) -> None:
        window.resize(window.minimumSize())
        finished(window)
        window.model_bar.end_reply(100.7)

    def huge_question(window) -> None:
        ask(window, "a" * 300_000, "That is a long word.")
        window.conversation.verticalScrollBar().setValue(window.conversation.verticalScrollBar().maximum())

    def early_enter(window) -> None:
        streaming(window)
        window.composer.draft.setPlainText("And a wind mill?")
        window.composer.draft.submitted.emit()

    def focus(window) -> None:
        stopped(window)
        window.conversation.reply.body.setFocus()
        window.conversation.reply.body.selectAll()

    yield "01-no-model", no_model
    yield "02-fetching", fetching
    yield "03-loading", loading
    yield "04-load-failed", load_failed
    yield "05-ready", ready
    yield "06-prefill", prefill
    yield "07-thinking", thinking
    yield "08-streaming", streaming
    yield "09-finished", finished
    yield "10-conversation", conversation
    yield "11-scrolled", scrolled
    yield "12-stopped", stopped
    yield "13-context-full", context_full
    yield "14-answer-failed", answer_failed
    yield "15-nearly-full", nearly_full
    yield "16-long-draft", long_draft
    yield "17-narrow", narrow
    yield "18-smallest", smallest
    yield "19-focus", focus
    yield "20-smallest-finished", smallest_finished
    yield "21-huge-question", huge_question
    yield "22-early-enter", early_enter


if __name__ == "__main__":
    sys.exit(render(Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) == 3 else main(sys.argv[1:]))
