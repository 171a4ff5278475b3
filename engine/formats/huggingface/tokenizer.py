"""tokenizer.json, tokenizer_config.json and generation_config.json → the keys `tokenizer.…` of a GGUF file.

Keys and token types are those of the GGUF specification. What tokenizer.json means is defined by the `tokenizers`
library; the other two files by Transformers.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.pretokenizer import BLANK, blanks, byte_level_name, is_byte_level
from engine.formats.huggingface.special import special_tokens
from engine.formats.json_text import read_object
from engine.text.tokenizer import KEEPS_BLANKS
from engine.text.vocabulary import PREFIX, TokenType
from engine.texts import Texts

FILE: Final = "tokenizer.json"
MAX_VOCABULARY: Final = 1 << 22

_BYTE: Final = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def tokenizer_metadata(folder: Path, config: Fields, rows: int) -> dict[str, object]:
    """The keys for a model whose embedding has so many `rows`, each of which gets a token.

    Raises ModelFileError where a file is missing or damaged, UnsupportedModelError for a tokenizer that is not known.
    """
    tokenizer = Fields(_read(folder), FILE)
    model = tokenizer.fields("model") or Fields({}, FILE)
    _check_kind(model)
    swallowing = config.get("model_type") == "phi3" and not is_byte_level(tokenizer)
    tokens, types = _vocabulary(tokenizer, model, rows, swallowing=swallowing)
    more: dict[str, object] = {}
    merges = _merges(model)
    keys: dict[str, object] = {"tokens": tokens, "token_type": types, "merges": merges}
    if is_byte_level(tokenizer):
        keys["model"] = "gpt2"
        keys["pre"] = byte_level_name(tokenizer, whole_words=model.flag("ignore_merges", False))
    elif model.flag("byte_fallback", False) and not model.flag("ignore_merges", False):
        keys["model"] = "llama"
        more = blanks(tokenizer)
        _mark_sentencepiece(tokens, types, model.get("unk_token"))
    else:
        raise UnsupportedModelError(
            f"The checkpoint's {FILE} works neither on bytes (ByteLevel) nor falls back to them (byte_fallback); other "
            "kinds are not known here."
        )
    keys |= special_tokens(folder, config, tokenizer, {token: number for number, token in enumerate(tokens)})
    keys |= {"tokens": Texts.of(tokens), "merges": Texts.of(merges)}
    template = keys.pop("chat_template", None)
    if template is not None:
        more["tokenizer.chat_template"] = template
    return {PREFIX + key: value for key, value in keys.items()} | more


def _read(folder: Path) -> dict[str, object]:
    if os.path.isfile(folder / FILE):
        return read_object(folder / FILE)
    older = next((name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (folder / name).exists()), None)
    if older is not None:
        raise UnsupportedModelError(
            f"{folder} has its tokenizer only in the older form {older}. Download its {FILE}, or a GGUF file of the "
            "model."
        )
    raise ModelFileError(f"{folder} has no {FILE}, without which no text can be read. Download it as well.")


def _check_kind(model: Fields) -> None:
    kind = model.text("type", "BPE")  # older files do not name it
    if kind != "BPE":
        raise UnsupportedModelError(f"The checkpoint's tokenizer is of the kind {quoted(kind)}; known is BPE.")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.text(key, ""):
            raise UnsupportedModelError(
                f"The checkpoint's tokenizer marks parts of words ({key}), as no known one does."
            )
    if model.number("dropout", 0.0):
        raise UnsupportedModelError("The checkpoint's tokenizer leaves merges out by chance (dropout).")


def _vocabulary(tokenizer: Fields, model: Fields, rows: int, *, swallowing: bool) -> tuple[list[str], list[int]]:
    """Tokens and types for ids 0 … rows - 1. An id that no token has gets a name of its own, as the converter does."""
    if rows > MAX_VOCABULARY:
        raise ModelFileError(f"The embedding has {rows} rows, more than the {MAX_VOCABULARY} allowed: it is damaged.")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict):
        raise _damaged("it has no vocabulary")
    tokens: list[str | None] = [None] * rows
    types: list[int] = [TokenType.NORMAL] * rows

    def put(token: str, number: object) -> int:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < rows:
            raise _damaged(f"token {quoted(token)} has an id that is none of 0 to {rows - 1}, which the model has")
        if tokens[number] not in (None, token):
            raise _damaged(f"tokens {quoted(str(tokens[number]))} and {quoted(token)} have the same id")
        tokens[number] = token
        return number

    for token, number in vocab.items():
        put(token, number)
    for added in _added(tokenizer, swallowing=swallowing):
        if added.integer("id") < rows:  # Gemma 3 adds tokens for images to models that have none
            special = added.flag("special", False) or added.flag("rstrip", False)
            types[put(added.text("content"), added.get("id"))] = (
                TokenType.CONTROL if special else TokenType.USER_DEFINED
            )
    padded = [f"[PAD{number}]" if token is None else token for number, token in enumerate(tokens)]
    for number, token in enumerate(tokens):
        if token is None:
            types[number] = TokenType.UNUSED
    return padded, types


def _added(tokenizer: Fields, *, swallowing: bool) -> list[Fields]:
    """The added tokens. `swallowing`: the special ones take the blanks after them, all but those that `engine.text`
    knows to leave them."""
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise _damaged("its added_tokens are no list of objects")
    found = [Fields(token, f"an added token of {FILE}") for token in added]
    for token in found:
        special = token.flag("special", False) or token.flag("rstrip", False)
        swallows = swallowing and special and token.text("content") not in KEEPS_BLANKS
        for key, known in (("lstrip", False), ("rstrip", swallows), ("single_word", False)):
            if token.flag(key, False) != known:
                raise UnsupportedModelError(
                    f"The checkpoint's token {quoted(token.text('content'))} takes its surroundings into account "
                    f"({key} in {FILE}), which this engine does not do."
                )
    return found


def _merges(model: Fields) -> list[str]:
    """Merges as GGUF writes them, with a blank between the halves."""
    merges = model.get("merges")
    if not isinstance(merges, list):
        raise _damaged("it has no merges")
    return [_merge(merge, number) for number, merge in enumerate(merges)]


def _merge(merge: object, number: int) -> str:
    text = merge
    if isinstance(merge, list) and len(merge) == 2 and isinstance(merge[0], str) and isinstance(merge[1], str):
        text = f"{merge[0]} {merge[1]}"
    if not isinstance(text, str) or text.count(" ") != 1 or text[0] == " " or text[-1] == " ":
        raise _damaged(f"entry {number} of its merges is not two tokens without blanks")
    return text


def _mark_sentencepiece(tokens: list[str], types: list[int], unknown: object) -> None:
    """Types and spellings that GGUF has for such vocabularies alone."""
    for number, token in enumerate(tokens):
        if token == unknown:
            types[number] = TokenType.UNKNOWN
        elif types[number] == TokenType.NORMAL and _BYTE.fullmatch(token):
            types[number] = TokenType.BYTE
        elif types[number] == TokenType.USER_DEFINED and not token.strip(BLANK):
            types[number] = TokenType.NORMAL  # found in no text, whose blanks are blanks: merges lead to it alone
        elif types[number] == TokenType.USER_DEFINED:
            tokens[number] = token.replace(BLANK, " ")


def _damaged(problem: str) -> ModelFileError:
    return ModelFileError(f"{FILE} is damaged: {problem}. Download it again.")
