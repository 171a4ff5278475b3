"""What a conversation tells the model, after replies that ended well, early, or not at all."""

from __future__ import annotations

import pytest

from app.attachment import Attachment
from app.session import Session
from engine.types import PLACE, Finished, FinishReason, Image, Message, Timings, Usage


def ended(reason: FinishReason = "stop") -> Finished:
    return Finished(reason, Usage(3, 0, 2), Timings(0.1, 0.1, 0.1, 30.0, 20.0))


def test_a_finished_reply_becomes_part_of_what_the_model_is_told() -> None:
    session = Session()
    exchange = session.ask("What is a mill?")
    assert session.messages() == (Message("user", "What is a mill?"),)
    exchange.add_text("A machine")
    exchange.add_text(" that grinds.")
    exchange.finish(ended())
    session.ask("And a millstone?")
    assert session.messages() == (
        Message("user", "What is a mill?"),
        Message("assistant", "A machine that grinds."),
        Message("user", "And a millstone?"),
    )


def test_a_stopped_reply_stays_as_far_as_it_came() -> None:
    session = Session()
    exchange = session.ask("Count")
    exchange.add_text("one two")
    exchange.finish(ended("cancelled"))
    assert exchange.state == "stopped"
    assert Message("assistant", "one two") in session.messages()


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_question_without_a_reply_is_left_out_so_that_roles_go_on_taking_turns(text: str) -> None:
    session = Session()
    exchange = session.ask("Count")
    exchange.add_text(text)
    exchange.finish(ended("cancelled"))
    session.ask("What is a mill?").fail("The model gave up.")
    session.ask("Hello")
    assert session.messages() == (Message("user", "Hello"),)


def test_reasoning_is_kept_but_not_told_again() -> None:
    session = Session()
    exchange = session.ask("Add 2 and 2")
    exchange.add_reasoning("two and two…")
    exchange.add_text("4")
    exchange.finish(ended())
    assert exchange.reasoning == "two and two…"
    assert session.messages() == (Message("user", "Add 2 and 2"), Message("assistant", "4"))


def test_an_event_of_a_conversation_that_was_cleared_finds_no_exchange() -> None:
    session = Session()
    old = session.ask("Count").request_id
    session.clear()
    new = session.ask("Hello")
    assert session.open_exchange(old) is None
    assert session.open_exchange(new.request_id) is new
    new.finish(ended())
    assert session.open_exchange(new.request_id) is None


def test_a_withdrawn_question_can_be_asked_again() -> None:
    session = Session()
    session.ask("Hello").fail("No.")
    assert session.withdraw().prompt == "Hello"
    session.ask("Hello")
    assert session.messages() == (Message("user", "Hello"),)


def picture(name: str) -> Attachment:
    return Attachment(Image(name.encode(), name), 1, 1, 1, 1, b"\0\0\0")


def test_a_picture_belongs_to_its_question_in_every_later_turn() -> None:
    session = Session()
    mill, wheel = picture("mill.png"), picture("wheel.png")
    exchange = session.ask("What is this?", (mill, wheel))
    exchange.add_text("A mill.")
    exchange.finish(ended())
    session.ask("And how old?")
    assert session.messages() == (
        Message("user", "What is this?", images=(mill.image, wheel.image)),
        Message("assistant", "A mill."),
        Message("user", "And how old?"),
    )
    assert session.has_pictures


def test_a_picture_of_a_question_that_is_left_out_is_left_out_with_it() -> None:
    session = Session()
    session.ask("What is this?", (picture("mill.png"),)).fail("No.")
    session.ask("Hello")
    assert session.messages() == (Message("user", "Hello"),)
    assert not session.has_pictures


def test_a_withdrawn_question_gives_its_pictures_back() -> None:
    session = Session()
    mill = picture("mill.png")
    session.ask("", (mill,)).fail("No.")
    assert session.withdraw().pictures == (mill,)


def test_a_place_for_a_picture_that_was_pasted_with_text_moves_none() -> None:
    session = Session()
    mill = picture("mill.png")
    session.ask(f"before{PLACE} after", (mill,))
    assert session.messages() == (Message("user", "before after", images=(mill.image,)),)
