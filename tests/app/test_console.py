"""What the terminal shows beside an answer."""

from __future__ import annotations

import io

import pytest

from app.console import Thoughts, note_cut, note_reasoning
from engine import Finished, Settings, Timings, Usage


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest gives each phase of a test a standard error of its own."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    return made


def finished(reason: str, *, in_reasoning: bool) -> Finished:
    return Finished(reason, Usage(3, 0, 7), Timings(0, 0, 0, 0, 0), in_reasoning)


def test_reasoning_is_dimmed_beside_the_answer_and_ends_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    thoughts = Thoughts()
    thoughts.show("first")
    thoughts.show(", then")
    thoughts.close()
    thoughts.close()
    assert terminal.getvalue() == "\x1b[2mfirst, then\x1b[0m\n\n"


def test_without_reasoning_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    thoughts = Thoughts()
    thoughts.show("")
    thoughts.close()
    assert terminal.getvalue() == ""


def test_reasoning_does_not_reach_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    thoughts = Thoughts()
    thoughts.show("first")
    thoughts.close()
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("reason", "in_reasoning", "said"),
    [
        ("length", True, "[stopped inside its reasoning at 7 tokens]\n"),
        ("length", False, "[stopped at 7 tokens]\n"),
        ("stop", True, "[ended inside its reasoning, without an answer]\n"),
        ("context", True, "[cut off inside its reasoning: the context of 2,048 tokens is full; /new begins again]\n"),
        ("stop", False, ""),
        ("cancelled", True, ""),
    ],
)
def test_a_reply_that_ends_inside_its_reasoning_says_so(
    monkeypatch: pytest.MonkeyPatch, reason: str, in_reasoning: bool, said: str
) -> None:
    terminal = at_terminal(monkeypatch)
    note_cut(finished(reason, in_reasoning=in_reasoning), 2048, "; /new begins again")
    assert terminal.getvalue() == said


def test_a_pipe_is_told_of_a_missing_answer_and_of_a_full_context_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    note_cut(finished("length", in_reasoning=False), 1)
    assert pipe.getvalue() == ""
    note_cut(finished("context", in_reasoning=False), 1)
    note_cut(finished("length", in_reasoning=True), 1)
    said = "[cut off: the context of 1 token is full]\n[stopped inside its reasoning at 7 tokens]\n"
    assert pipe.getvalue() == said


def test_hidden_reasoning_leaves_a_line_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    thoughts = Thoughts(hidden=True)
    thoughts.show("first")
    thoughts.show(", then")
    thoughts.close()
    assert terminal.getvalue() == "\r\x1b[KThinking …\r\x1b[K"


def test_reasoning_that_was_not_wanted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    note_reasoning(Settings(thinking=True), "Why?")
    note_reasoning(Settings(), "Why?")
    note_reasoning(Settings(thinking=False), "")
    assert pipe.getvalue() == ""
    note_reasoning(Settings(thinking=False), "Why?")
    assert pipe.getvalue().startswith("millstream: The model reasoned although")
