"""Text in and out: tokenizer, chat template, incremental detokenising, stop strings."""

from engine.text.detokenize import Detokenizer
from engine.text.stop import StopStrings
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "Detokenizer", "StopStrings", "Tokenizer"]
