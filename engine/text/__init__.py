"""Text in and out: tokenizer, chat template, incremental detokenising, stop strings, reasoning and calls of tools."""

from engine.text.chat import Chat
from engine.text.detokenize import Detokenizer
from engine.text.reply import ReplyForm, ReplyReader
from engine.text.stop import StopStrings
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

__all__ = ["Chat", "ChatTemplate", "Detokenizer", "ReplyForm", "ReplyReader", "StopStrings", "Tokenizer"]
