"""How one model is talked with: what a conversation becomes for it, and how its replies are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from engine.errors import SettingsError, UnsupportedModelError
from engine.text.channels import Harmony
from engine.text.conversation import descriptions
from engine.text.pictures import PICTURE, PictureForm
from engine.text.reply import ReplyForm
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.text.tools import KNOWN, parameter_types
from engine.types import Message, Settings, Tool


class Chat:
    """A model's template and tokenizer, and the forms in which it reasons and calls tools. Immutable."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    def render(self, messages: Sequence[Message], settings: Settings, tools: Sequence[Tool]) -> str:
        """The conversation as text, as `encode` turns it into ids. Raises what `ChatTemplate.render` raises."""
        told = self._with_tools(messages, tools)
        return self._template.render(told, tools=tools, thinking=settings.thinking, effort=settings.effort)

    def encode(
        self,
        messages: Sequence[Message],
        settings: Settings,
        tools: Sequence[Tool],
        pictures: PictureForm | None = None,
    ) -> list[int]:
        """The ids of the conversation, up to where the reply begins, with `PICTURE` for each picture.

        `pictures` is how the model takes them; without it the messages have none. Raises SettingsError where the
        template cannot do what is asked for, and what `ChatTemplate.render` raises.
        """
        template = self._template
        if settings.thinking and not template.takes_thinking and self._tokenizer.channels is None:
            raise SettingsError("This model does not reason before it answers: leave thinking away.")
        if settings.effort is not None and not template.takes_effort:
            raise SettingsError(
                "This model's chat template cannot tell it how much to reason: leave the effort (low, medium, high) "
                "away" + (", or switch thinking on or off." if template.takes_thinking else ".")
            )
        prompt = self._tokenizer.encode_chat(
            template,
            self._with_tools(messages, tools),
            tools=tools,
            thinking=settings.thinking,
            effort=settings.effort,
            pictures=pictures,
        )
        if prompt.count(PICTURE) != sum(len(message.images) for message in messages):
            raise UnsupportedModelError(
                "This model's chat template does not make room for every picture: leave the pictures away, or get a "
                "file of the model whose template takes them."
            )
        if (
            settings.thinking is False
            and not template.takes_thinking
            and self._always_reasons([token for token in prompt if token != PICTURE])
        ):
            shorter = ", but a low effort keeps it short." if template.takes_effort else "."
            raise SettingsError(f"This model always reasons, and its chat template has no switch for that{shorter}")
        return prompt

    def reply_form(self, tools: Sequence[Tool]) -> ReplyForm:
        """How replies are read where the model was told of these tools.

        Raises SettingsError for a model that cannot call tools, UnsupportedModelError where the form of its calls is
        not known.
        """
        channels = self._tokenizer.channels
        if not tools or isinstance(channels, Harmony):  # calls are messages of harmony's own
            return ReplyForm(channels)
        calls = self._tokenizer.calls
        if not self._template.takes_tools and (calls is None or calls.open not in self._template.source):
            raise SettingsError("This model's chat template knows no tools: leave them away, or use another model.")
        if calls is None:
            raise UnsupportedModelError(
                "This model writes calls of tools in a form that is not known here. Known are those of: "
                f"harmony, {', '.join(KNOWN)}."
            )
        return ReplyForm(channels, calls, parameter_types(descriptions(tools)))

    def _with_tools(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Sequence[Message]:
        """The tools told in a system message, where the template has no place for them, as those of DeepSeek."""
        if not tools or self._template.takes_tools:
            return messages
        listed = (json.dumps(tool["function"], ensure_ascii=False) for tool in descriptions(tools))
        text = "\n".join(("You can call these tools:", *listed))
        if messages and messages[0].role == "system":
            return [replace(messages[0], content=f"{messages[0].content}\n\n{text}"), *messages[1:]]
        return [Message("system", text), *messages]

    def _always_reasons(self, prompt: Sequence[int]) -> bool:
        """Whether the reply begins within the reasoning, or has a channel for it whatever the prompt says."""
        channels = self._tokenizer.channels
        return isinstance(channels, Harmony) or ReplyForm(channels).reader(self._tokenizer, prompt).in_reasoning
