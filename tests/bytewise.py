"""A tokenizer of single bytes, which any model can have."""

from __future__ import annotations

from gguf import GGUFWriter, TokenType

from tests.tiny_chat import byte_tokens

VOCABULARY = 260
"""The 256 bytes, two pairs of them, and the ends."""
SPECIAL = ("<|end|>", "<|turn|>")


def bytewise(writer: GGUFWriter) -> int:
    """Add it to a file, without a template: → its size. Token i < 256 is byte i."""
    tokens = [*byte_tokens(), "th", "he", *SPECIAL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * 258 + [TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges(["t h", "h e"])
    writer.add_eos_token_id(tokens.index("<|end|>"))
    writer.add_add_bos_token(False)
    return len(tokens)
