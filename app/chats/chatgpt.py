"""Chats as ChatGPT exports them: `conversations.json`, a list of trees of nodes.

OpenAI has published no description of it. What is relied on is alike in every public one: a conversation has `mapping`,
from a node's id to its `message` (which may be null), `parent` and `children`, and `current_node`, the end of what was
shown; a message has `author.role`, `content` with `content_type` and `parts`, and `create_time`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.chats.millstream_json import text, time
from app.chats.portable import PortableChat, PortableMessage
from engine.types import Role

_SPOKEN: Final = ("text", "multimodal_text", "code")
"""The kinds of content that a person saw as the message."""


def is_one(value: Mapping[str, object]) -> bool:
    return "mapping" in value


def to_chat(value: Mapping[str, object], now: float) -> tuple[PortableChat, list[str]]:
    """→ the chat, and what is wrong with single messages. Raises ValueError for what is no conversation.

    Of the hidden turns in which ChatGPT called tools, the text that it wrote between them is kept, as one reply.
    """
    nodes = value.get("mapping")
    uid = value.get("conversation_id") or value.get("id")
    if not isinstance(nodes, dict):
        raise ValueError("it has no tree of messages")
    if not isinstance(uid, str) or not uid:
        raise ValueError("it has no id")
    made = time(value.get("create_time"), now)
    tree = _Tree(nodes, made)
    last = tree.kept_at(value.get("current_node"))
    chosen: dict[str | None, str] = {}
    while last is not None:
        parent = tree.messages[last].parent
        chosen[parent] = last
        last = parent
    messages = tuple(tree.finished(key, chosen.get(key)) for key in tree.messages)
    if not messages and not tree.faults:
        raise ValueError("it holds no messages")
    chat = PortableChat(
        uid="chatgpt-" + re.sub(r"[^\w-]", "-", uid[:80]),
        title=text(value, "title"),
        made=made,
        changed=time(value.get("update_time"), made),
        messages=messages,
        chosen=chosen.get(None),
    )
    return chat, tree.faults


@dataclass(frozen=True)
class _Above:
    """The nearest kept message above a node, whether only a single line leads down from it, and the thoughts on that
    line, which await their reply."""

    key: str | None = None
    single: bool = True
    thoughts: str = ""


class _Tree:
    """The nodes that are kept, each below the nearest kept one above it. Walked without recursion: it may be deep."""

    def __init__(self, nodes: Mapping[str, object], made: float) -> None:
        self.messages: dict[str, PortableMessage] = {}
        self.faults: list[str] = []
        self._made = made
        self._stands_for: dict[str, str | None] = {}
        """For every node that was walked, the kept message that it is, or is below of."""
        self._thoughts: dict[str, str] = {}
        self._more: dict[str, list[str]] = {}
        children: dict[str | None, list[str]] = {}
        for id, node in nodes.items():
            parent = node.get("parent") if isinstance(node, dict) else None
            known = isinstance(parent, str) and parent in nodes and parent != id
            children.setdefault(parent if known else None, []).append(id)
        waiting = [(id, _Above()) for id in reversed(children.get(None, []))]
        while waiting:
            id, above = waiting.pop()
            here = self._walk(id, nodes[id], above)
            self._stands_for[id] = here.key
            below = children.get(id, [])
            if len(below) > 1:
                here = replace(here, single=False)
            waiting += [(child, here) for child in reversed(below)]
        if lost := len(nodes) - len(self._stands_for):
            self.faults.append(f"{lost} messages follow each other in a circle")

    def kept_at(self, id: object) -> str | None:
        found = self._stands_for.get(id) if isinstance(id, str) else None
        return found if found is not None else next(reversed(self.messages), None)

    def finished(self, key: str, chosen: str | None) -> PortableMessage:
        one = self.messages[key]
        whole = "\n\n".join([one.text, *self._more.get(key, ())])
        return replace(one, text=whole, chosen=chosen, reasoning=self._thoughts.get(key, ""))

    def _walk(self, id: str, node: object, above: _Above) -> _Above:
        """→ what stands above the nodes below this one."""
        message = node.get("message") if isinstance(node, dict) else None
        if message is None:
            return above
        try:
            role, kind, words, made, model = self._read(message)
        except ValueError as error:
            self.faults.append(f"message {id[:40]}: {error}")
            return above
        if kind == "thoughts":
            return replace(above, thoughts=_joined(above.thoughts, words))
        if role not in ("user", "assistant") or kind not in _SPOKEN or not words.strip():
            return above
        before = self.messages.get(above.key or "")
        if before is not None and before.role == role == "assistant" and above.single:
            self._more.setdefault(before.key, []).append(words)
            self._thoughts[before.key] = _joined(self._thoughts.get(before.key, ""), above.thoughts)
            return replace(above, thoughts="")
        said: Role = "user" if role == "user" else "assistant"
        self.messages[id] = PortableMessage(id, above.key, said, words, made, model=model)
        self._thoughts[id] = above.thoughts if said == "assistant" else ""
        return _Above(id)

    def _read(self, message: object) -> tuple[str, str, str, float, str]:
        """→ role, kind of content, text, time and model."""
        if not isinstance(message, dict):
            raise ValueError("it is no object")
        author, content, notes = message.get("author"), message.get("content"), message.get("metadata")
        if not isinstance(author, dict) or not isinstance(content, dict):
            raise ValueError("its author or its content is missing")
        notes = notes if isinstance(notes, dict) else {}
        role, kind = text(author, "role"), text(content, "content_type")
        hidden = notes.get("is_visually_hidden_from_conversation") or message.get("recipient") not in (None, "all")
        return (
            "" if hidden else role,
            kind,
            _words(content, kind),
            time(message.get("create_time"), self._made),
            text(notes, "model_slug"),
        )


def _joined(*pieces: str) -> str:
    return "\n\n".join(filter(None, pieces))


def _words(content: Mapping[str, object], kind: str) -> str:
    """The text of a message; a picture in it, which the file does not hold, is named as one."""
    if kind == "thoughts":
        listed = content.get("thoughts")
        found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        return "\n\n".join(text(each, "content") or text(each, "summary") for each in found)
    parts = content.get("parts")
    if not isinstance(parts, list):
        return text(content, "text")
    words = []
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict):
            words.append(text(part, "text") or ("[picture]" if part.get("asset_pointer") else ""))
    return _joined(*words)
