"""Whether a prompt fits into the context, and the sentence for one that does not."""

from __future__ import annotations

from functools import cached_property

from engine.errors import ContextError, SettingsError
from engine.text import Tokenizer
from engine.text.bound import LengthBound
from engine.types import ModelInfo
from engine.units import plural

SHORTEN = "shorten the text"
BEGIN_OR_SHORTEN = "begin a new conversation or shorten the text"
BEGIN_OR_LEAVE = "begin a new conversation, shorten the text or leave pictures away"


class ContextLimit:
    """The `positions` that prompt and reply may fill together. Each check raises ContextError with `way_out`."""

    def __init__(self, positions: int, info: ModelInfo, tokenizer: Tokenizer) -> None:
        self._positions = positions
        self._tokens = f"{positions} {plural(positions, 'token')}"
        self._info = info
        self._tokenizer = tokenizer

    def check(self, prompt: int, steps: int, way_out: str = SHORTEN) -> None:
        """Refuse so many tokens and as many steps after them if they do not fit, or if there is no token."""
        if prompt == 0:
            raise SettingsError("The prompt is empty: there is nothing to go on from.")
        if prompt + steps > self._positions:
            after = f" and {steps} more" if steps else ""
            raise self._too_long(f"{prompt} {plural(prompt, 'token')}{after}", way_out)

    def check_least(self, prompt: int, way_out: str) -> None:
        """Refuse a prompt that is known to have so many tokens, before the rest is looked at."""
        if prompt > self._positions:
            raise self._too_long(f"at least {prompt} {plural(prompt, 'token')}", way_out)

    def check_text(self, text: str, way_out: str) -> None:
        """Refuse at once what is too long however it is encoded."""
        if len(text) > self._positions and self._bound.least_tokens(text) > self._positions:
            raise self._too_long(f"{len(text)} characters", way_out)

    def _too_long(self, prompt: str, way_out: str) -> ContextError:
        """The sentence for a prompt of this size."""
        largest = self._info.context_length
        if largest and self._positions >= largest:
            return ContextError(
                f"The prompt has {prompt}, but the context holds {self._tokens}, this model's largest: {way_out}."
            )
        allows = f" ({self._info.name} allows {largest})" if largest else ""
        return ContextError(
            f"The prompt has {prompt}, but the context holds {self._tokens}: {way_out}, or load the "
            f"model with a larger context{allows}."
        )

    @cached_property
    def _bound(self) -> LengthBound:
        return LengthBound(self._tokenizer)
