"""The states of the window that are worth a picture, and what the engine says to bring each about."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from PySide6.QtWidgets import QApplication

from app.requests import Answer, AnswerFailed, Fetching, LoadCancelled, LoadFailed, Loading
from app.window import Window
from engine.types import Event, Finished, PrefillProgress, Reasoning, Text, Timings, ToolCall, Usage
from tests.plans import STREAMED

ANSWER = (
    "A water mill is a machine that takes its power from running water. The water turns a wheel, the wheel turns a "
    "shaft, and the shaft drives whatever stands inside: most often a pair of stones that grind grain into flour.\n\n"
    "There are three usual kinds of wheel:\n"
    "1. Undershot: the stream pushes the lowest paddles. Simple, and weak.\n"
    "2. Breastshot: the water meets the wheel at the height of its axle.\n"
    "3. Overshot: the water falls onto the top and its weight does the work. The strongest of the three.\n\n"
    "Mills also sawed timber, fulled cloth and worked the bellows of forges."
)


THOUGHT = (
    "The user asks about water mills. I should say what they are, what they were used for, and the kinds of wheel.\n\n"
    "Undershot is the weakest, overshot the strongest. Breastshot lies between. Perhaps a sentence on sawing and "
    "fulling as well, since most people think of flour alone. I will keep it short."
)


def settle(process: Callable[[], None], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        process()
        time.sleep(0.002)


def pump(seconds: float = 0.05) -> None:
    settle(QApplication.processEvents, seconds)


def say(window, notice) -> None:
    window.bridge.notice.emit(notice)


def ready(window) -> None:
    window.chat.load("silent")
    pump(0.2)


def event(window: Window, event: Event) -> None:
    say(window, Answer(window.chat.session.last_request_id, event))


def end(window, reason="stop", tokens=148, in_reasoning=False) -> None:
    usage, timings = Usage(412, 380, tokens), Timings(0.31, 4.2, 0.33, 103.0, 35.2)
    say(window, Answer(window.chat.session.last_request_id, Finished(reason, usage, timings, in_reasoning)))


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


def loading_planned(window) -> None:
    window.chat.load("wait")
    say(window, Loading("Reading weights", 640_000_000, 1_400_000_000, STREAMED))


def too_little_memory(window) -> None:
    window.chat.load("wait")
    say(
        window,
        LoadFailed(
            "Qwen3-235B-A22B-Instruct needs at least 2.9 GB of memory, but 1.2 GB is free beside 1.1 GB for others: "
            "close other programs or choose a smaller model."
        ),
    )


def from_disk(window) -> None:
    window.chat.load("large")
    pump(0.2)


def from_disk_finished(window) -> None:
    from_disk(window)
    ask(window, "What is a water mill?", ANSWER)
    end(window)


def placement(window) -> None:
    from_disk_finished(window)
    window.model_bar.fit_button.click()
    pump()


def placement_in_memory(window) -> None:
    finished(window)
    window.model_bar.show_placement()
    pump()


def from_disk_narrow(window) -> None:
    window.resize(640, 560)
    from_disk_finished(window)


def from_disk_smallest(window) -> None:
    window.resize(window.minimumSize())
    from_disk_finished(window)


def placement_smallest(window) -> None:
    from_disk_smallest(window)
    window.model_bar.show_placement()
    pump()


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
    event(window, Reasoning(THOUGHT[:200]))
    pump()


def thinking_unfolded(window) -> None:
    thinking(window)
    window.conversation.reply.thoughts.header.click()


def thought(window) -> None:
    thinking(window)
    pump(1.2)
    event(window, Reasoning(THOUGHT[200:]))
    event(window, Text(ANSWER))
    pump()
    end(window)


def thought_unfolded(window) -> None:
    thought(window)
    window.conversation.reply.thoughts.header.click()


def ended_in_reasoning(window) -> None:
    thinking(window)
    pump(1.2)
    end(window, "length", in_reasoning=True)


def calls(window) -> None:
    thinking(window)
    event(window, Text("I will look at the level of the river, and then write it down."))
    event(window, ToolCall("river_level", '{"place": "Millbrook", "at": "2024-05-01T12:00", "days": 3}'))
    event(window, ToolCall("list_files", "{}"))
    code = "levels = [1.2, 1.4, 1.3]\\nprint(max(levels))"
    event(window, ToolCall("python", f'{{"code": "{code}"}}'))
    pump()
    end(window)


def another_model(window) -> None:
    finished(window)
    window.chat.open("wait")
    pump()


def other_model_failed(window) -> None:
    another_model(window)
    say(window, LoadFailed("mill.gguf has only 4 bytes. Download it again."))


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
    ask(window, "And what is the difference between\na mill race and a mill pond?", "A mill pond stores water. " * 9)
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
            "new chat",
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


def model_lost(window) -> None:
    from_disk(window)
    ask(window, "What is a water mill?", ANSWER[:420])
    say(
        window,
        AnswerFailed(
            window.chat.session.last_request_id,
            "Reading tensor blk.17.ffn_down.weight from /media/ada/Backup/models/Qwen3-235B-A22B-Instruct-Q4_K_M.gguf "
            "failed: Input/output error. Check the disk, or download the file again.",
            "open again",
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


def states() -> Iterator[tuple[str, Callable[[Window], None]]]:
    yield "01-no-model", no_model
    yield "02-fetching", fetching
    yield "03-loading", loading
    yield "04-load-failed", load_failed
    yield "05-ready", ready
    yield "06-prefill", prefill
    yield "07-thinking", thinking
    yield "07b-thinking-unfolded", thinking_unfolded
    yield "07c-thought", thought
    yield "07d-thought-unfolded", thought_unfolded
    yield "07e-ended-in-reasoning", ended_in_reasoning
    yield "07f-calls", calls
    yield "08-streaming", streaming
    yield "09-finished", finished
    yield "10-conversation", conversation
    yield "11-scrolled", scrolled
    yield "12-stopped", stopped
    yield "13-context-full", context_full
    yield "14-answer-failed", answer_failed
    yield "14b-model-lost", model_lost
    yield "15-nearly-full", nearly_full
    yield "16-long-draft", long_draft
    yield "17-narrow", narrow
    yield "18-smallest", smallest
    yield "19-focus", focus
    yield "20-smallest-finished", smallest_finished
    yield "21-huge-question", huge_question
    yield "22-early-enter", early_enter
    yield "23-another-model", another_model
    yield "24-other-model-failed", other_model_failed
    yield "25-loading-planned", loading_planned
    yield "25b-too-little-memory", too_little_memory
    yield "26-from-disk", from_disk
    yield "26b-from-disk-finished", from_disk_finished
    yield "26c-from-disk-narrow", from_disk_narrow
    yield "26d-from-disk-smallest", from_disk_smallest
    yield "27-placement", placement
    yield "27b-placement-in-memory", placement_in_memory
    yield "27c-placement-smallest", placement_smallest
