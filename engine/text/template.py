"""The chat template that a model file carries: a conversation → the text that the model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from engine.errors import MillstreamError, SettingsError, UnsupportedModelError
from engine.text.conversation import CALL_STYLES, CallStyle, Guard, descriptions, size, turns, unchanged
from engine.types import Effort, Message, Tool, ToolCall

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

KEY: Final = "tokenizer.chat_template"

_LONGEST_SOURCE: Final = 1 << 16
"""Characters; bounds the time that compiling can take. Real ones have up to some 20,000."""
_BASE_LIMIT: Final = 1 << 19
_LIMIT_PER_INPUT: Final = 8
_QUOTED: Final = 300
_TOOLS: Final = ("tools", "xml_tools")
_THINKING: Final = ("enable_thinking", "thinking")
_EFFORT: Final = ("reasoning_effort", "thinking_effort")
_PROBE: Final = (
    Message("user", "?"),
    Message("assistant", "", calls=(ToolCall("probed_tool", '{"probed_key": "probed_text"}'),)),
    Message("tool", "!"),
)
_SAID: Final = Message("user", "probed_text")
_REMEDY: Final = "The model can still be used on raw text."


class ChatTemplate:
    """One template, compiled. Rendering changes nothing in it, so threads may share it.

    A template sees what those of Hugging Face checkpoints are written for (Transformers, "Chat templates"): `messages`,
    `tools` (SmolLM3's `xml_tools`), `documents`, `add_generation_prompt`, `bos_token`, `eos_token`, the switches of
    reasoning where they are given (`enable_thinking`, DeepSeek's `thinking`, GPT-OSS's `reasoning_effort`, Kimi's
    `thinking_effort`), the functions `raise_exception` and `strftime_now`, `tojson` without HTML escapes, `break` and
    `continue`, and the tag `generation`. It is somebody else's program, so it runs in `engine.text.sandbox`: for at
    most `seconds`, and building no text longer than 2^19 characters plus eight times what it was given.
    """

    def __init__(
        self,
        source: str,
        *,
        bos: str,
        eos: str,
        seconds: float = 5.0,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`bos` and `eos` are the texts of these tokens, empty where there are none.

        Raises UnsupportedModelError where the source is no template that can be run.
        """
        from jinja2 import meta

        from engine.text.sandbox import Sandbox

        if len(source) > _LONGEST_SOURCE:
            raise UnsupportedModelError(
                f"This model's chat template has {len(source)} characters, "
                f"and at most {_LONGEST_SOURCE} are read. {_REMEDY}"
            )
        self.source = source
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._seconds = seconds
        sandbox = Sandbox()
        sandbox.globals["strftime_now"] = lambda form: now().strftime(form[:64])
        try:
            parsed = sandbox.parse(source)
            self._reads = frozenset(meta.find_undeclared_variables(parsed))
            self._template = sandbox.from_string(parsed)
        except Exception as error:  # whatever the compiler does with a hostile source, it is the file's fault
            raise UnsupportedModelError(
                f"This model's chat template cannot be read ({_quoted(error)}). {_REMEDY}"
            ) from error

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a GGUF file. Raises UnsupportedModelError where it has none, or none that can be run."""
        source = metadata.get(KEY)
        if not isinstance(source, str) or not source.strip():
            raise UnsupportedModelError(
                "This model file has no chat template, so what the model takes for a conversation is not known. "
                "Use it on raw text, or get a file of the model that is made for chat."
            )
        eos = metadata.get("tokenizer.ggml.eos_token_id")
        return cls(
            source,
            bos="" if tokenizer.bos is None else tokenizer.token_text(tokenizer.bos),
            eos=tokenizer.token_text(eos) if isinstance(eos, int) else "",
        )

    @property
    def takes_tools(self) -> bool:
        """Whether it tells the model of tools."""
        return not self._reads.isdisjoint(_TOOLS)

    @property
    def takes_thinking(self) -> bool:
        """Whether it can switch the model's reasoning on and off."""
        return not self._reads.isdisjoint(_THINKING)

    @property
    def takes_effort(self) -> bool:
        """Whether it can tell the model how much to reason."""
        return not self._reads.isdisjoint(_EFFORT)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Tool] = (),
        thinking: bool | None = None,
        effort: Effort | None = None,
        guard: Guard = unchanged,
    ) -> str:
        """The conversation as one text, which ends where the reply begins if `add_generation_prompt` is set.

        `guard` is applied to everything that the messages and tools say. Raises SettingsError where they are not sound
        in themselves or the template refuses them, such as a system message, and UnsupportedModelError where it fails
        or is stopped.
        """
        style = self._call_style if any(message.calls for message in messages) else CALL_STYLES[0]
        variables: dict[str, object] = {
            "messages": turns(messages, style, guard, parts=self._wants_parts),
            **dict.fromkeys(_TOOLS, descriptions(tools, guard) or None),
            "add_generation_prompt": add_generation_prompt,
        }
        if thinking is not None:
            variables |= dict.fromkeys(_THINKING, thinking)
        if effort is not None:
            variables |= dict.fromkeys(_EFFORT, effort)
        return self._run(variables, size(messages, tools) + 100 * (len(messages) + len(tools)))

    def _run(self, variables: Mapping[str, object], given: int) -> str:
        """`given`: about how many characters the variables hold."""
        from engine.text.meter import Meter, TemplateLimitError
        from engine.text.sandbox import MeteredContext, TemplateRefusal

        context = cast(MeteredContext, self._template.new_context({"documents": None, **self._tokens, **variables}))
        context.meter = Meter(_BASE_LIMIT + _LIMIT_PER_INPUT * given, self._seconds)
        try:
            return "".join(self._template.root_render_func(context))
        except TemplateRefusal as refusal:
            raise SettingsError(f"This model's chat template refused the conversation: {_quoted(refusal)}") from refusal
        except TemplateLimitError as limit:
            raise UnsupportedModelError(f"This model's chat template was stopped: {limit}. {_REMEDY}") from limit
        except Exception as error:  # it is somebody else's program: any error in it is the file's fault
            raise UnsupportedModelError(f"This model's chat template failed ({_quoted(error)}). {_REMEDY}") from error

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether content that is mere text does not reach the model, but a list of parts does, as SmolVLM has it."""

        def heard(parts: bool) -> bool:
            told = turns((_SAID,), parts=parts)
            try:
                text = self._run({"messages": told, "add_generation_prompt": True}, size((_SAID,), ()))
            except MillstreamError:
                return False
            return _SAID.content in text and "'type'" not in text  # written out whole, a list was not read

        return not heard(parts=False) and heard(parts=True)

    @cached_property
    def _call_style(self) -> CallStyle:
        """How this template takes calls: the first way in which all that a call says reaches the model, unescaped."""
        for style in CALL_STYLES:
            try:
                told = turns(_PROBE, style, parts=self._wants_parts)
                text = self._run({"messages": told, "tools": None}, size(_PROBE, ()))
            except MillstreamError:
                continue
            call = _PROBE[1].calls[0]
            if all(part in text for part in (call.name, "probed_key", "probed_text")) and '\\"probed_key' not in text:
                return style
        return CALL_STYLES[0]


def _quoted(error: Exception) -> str:
    """An error's own words, on one line and not too many. Its kind where it has none."""
    return " ".join(str(error)[:_QUOTED].split()) or type(error).__name__
