"""A chat as Markdown, for people: what is shown of it, without its other branches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.chats.records import Chat, Picture, Turn, moment

_SUFFIXES: Final = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".heic"}


@dataclass(frozen=True)
class Words:
    """Those of the headings, in the person's language."""

    untitled: str = "Untitled chat"
    user: str = "You"
    assistant: str = "Model"
    system: str = "System prompt"
    tool: str = "Tool"
    reasoning: str = "Reasoning"


def as_markdown(chat: Chat, turns: Sequence[Turn], places: Mapping[str, str], words: Words) -> str:
    """`places` are the files of the pictures, by digest, relative to the text."""
    made = moment(chat.made).strftime("%Y-%m-%d %H:%M")
    pieces = [f"# {one_line(chat.title) or words.untitled}", f"*{made}*"]
    if chat.system.strip():
        pieces += [f"## {words.system}", chat.system.strip()]
    names = {"user": words.user, "tool": words.tool, "system": words.system}
    for turn in turns:
        pieces.append(f"## {names.get(turn.role) or one_line(turn.model) or words.assistant}")
        pieces += [f"![{_alt(each)}](<{places[each.digest]}>)" for each in turn.pictures if each.digest in places]
        if turn.reasoning.strip():
            pieces.append(f"<details><summary>{words.reasoning}</summary>\n\n{turn.reasoning.strip()}\n\n</details>")
        if turn.text.strip():
            pieces.append(turn.text.strip())
        if turn.sentence:
            pieces.append(f"*{turn.sentence}*")
    return "\n\n".join(pieces) + "\n"


def file_of(picture: Picture) -> str:
    """A name for the picture's file: the same for the same picture."""
    suffix = "." + picture.name.rpartition(".")[2].lower()
    return picture.digest[:16] + (suffix if suffix in _SUFFIXES else "")


def one_line(text: str) -> str:
    return " ".join(text.split())


def _alt(picture: Picture) -> str:
    return re.sub(r"([\[\]\\])", r"\\\1", one_line(picture.name))
