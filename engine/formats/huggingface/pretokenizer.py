"""The `pre_tokenizer` and `normalizer` of a tokenizer.json → the name under which `engine.text` knows that form.

Kinds and their defaults are those of the `tokenizers` library (huggingface.co/docs/tokenizers, API, Pre-tokenizers and
Normalizers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.errors import UnsupportedModelError
from engine.formats.gguf_header import quoted
from engine.formats.huggingface.fields import Fields
from engine.text.pretokenizers import PRE_TOKENIZERS
from engine.text.tokenizer import PREPEND_SCHEME, SPLIT
from engine.text.vocabulary import PREFIX

BLANK = "\u2581"

_BLANK_ITSELF = {"String": " "}
_GPT2 = PRE_TOKENIZERS["gpt-2"].patterns
"""What `ByteLevel` cuts by itself unless `use_regex` is off."""

_COVERS = re.compile(r"\[\^\\s\\p\{L\}(\\p\{M\})?\\p\{N\}\]\+.*\|\\s\+$", re.DOTALL)
"""The end of those expressions here that match every character: removing what lies between matches removes nothing."""


def byte_level_name(tokenizer: Fields, *, whole_words: bool) -> str:
    """The entry of `PRE_TOKENIZERS` that cuts as this tokenizer does. Raises UnsupportedModelError where none does."""
    steps = list(_steps(tokenizer, "pre_tokenizer", "pretokenizers"))
    if "ByteLevel" in (step.get("type") for step in steps[:-1]):
        raise _unknown("cuts what it has already turned into bytes")
    patterns = [pattern for step in steps for pattern in _patterns(step)]
    normalizers = [step.text("type") for step in _steps(tokenizer, "normalizer", "normalizers")]
    if normalizers not in ([], ["NFC"]):
        raise _unknown(f"changes text before it is cut by {', '.join(map(quoted, normalizers))}")
    wanted = [_spelled(pattern) for pattern in patterns], normalizers == ["NFC"], whole_words
    for name, rule in PRE_TOKENIZERS.items():
        if ([_spelled(pattern) for pattern in rule.patterns], rule.nfc, rule.whole_words) == wanted:
            return name
    raise _unknown(f"cuts text by {', '.join(map(quoted, patterns)) or 'no expression'}")


def is_byte_level(tokenizer: Fields) -> bool:
    steps = _steps(tokenizer, "pre_tokenizer", "pretokenizers")
    return any(step.get("type") == "ByteLevel" for step in steps)


def blanks(tokenizer: Fields) -> dict[str, object]:
    """What a tokenizer that writes blanks as U+2581 does about them, as keys of `engine.text.tokenizer`.

    Raises UnsupportedModelError for any form but those of Llama 2's file and Gemma's (a normalizer that prepends and
    replaces, and no cutting), and that of newer Llama 2 and Mistral (`Metaspace`, and no normalizer).
    """
    normalizing = list(_steps(tokenizer, "normalizer", "normalizers"))
    cutting = list(_steps(tokenizer, "pre_tokenizer", "pretokenizers"))
    if not normalizing and [step.get("type") for step in cutting] == ["Metaspace"]:
        return _metaspace(cutting[0])
    done: list[str] = []
    for step in normalizing:
        kind = step.text("type")
        prepends = kind == "Prepend" and step.get("prepend") == BLANK
        replaces = kind == "Replace" and step.get("pattern") == _BLANK_ITSELF and step.get("content") == BLANK
        if not prepends and not replaces:
            raise _unknown(f"changes text before it is cut by {quoted(kind)}")
        done.append(kind)
    if done not in (["Prepend", "Replace"], ["Replace"]):
        raise _unknown(f"changes text before it is cut by {', '.join(done) or 'nothing'}")
    for step in cutting:
        # With its blanks replaced, a text has none left to be cut at.
        if step.get("type") != "Split" or step.get("pattern") != _BLANK_ITSELF or step.flag("invert", False):
            raise _unknown(f"cuts text by {quoted(step.text('type'))}")
    return {f"{PREFIX}add_space_prefix": done[0] == "Prepend"}


def _metaspace(step: Fields) -> dict[str, object]:
    scheme = step.text("prepend_scheme", "always")
    if not step.flag("add_prefix_space", True):  # as older files have it
        scheme = "never"
    if step.text("replacement") != BLANK or scheme not in ("never", "always", "first"):
        raise _unknown(f"cuts text by 'Metaspace' with {quoted(step.text('replacement'))} and {quoted(scheme)}")
    return {PREPEND_SCHEME: scheme, SPLIT: step.flag("split", True)}


def _steps(tokenizer: Fields, key: str, inner: str) -> Iterator[Fields]:
    """The single steps of a part of the tokenizer."""
    part = tokenizer.fields(key)
    if part is None:
        return
    if part.get("type") != "Sequence":
        yield part
        return
    steps = part.get(inner)
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise _unknown(f"gives {key} as a sequence without steps")
    for number, step in enumerate(steps):
        yield Fields(step, f"step {number} of {part.where}")


def _patterns(step: Fields) -> tuple[str, ...]:
    """The expressions by which one step cuts, every match and every stretch between two becoming a piece."""
    kind = step.text("type")
    if kind == "ByteLevel":
        if step.flag("add_prefix_space", True):
            raise _unknown("puts a blank before every text")
        return _GPT2 if step.flag("use_regex", True) else ()
    if kind == "Digits":
        return (r"\p{N}" if step.flag("individual_digits", False) else r"\p{N}+",)
    if kind == "Split":
        pattern = step.fields("pattern") or Fields({}, step.where)
        expression = pattern.text("Regex") if "Regex" in pattern else re.escape(pattern.text("String"))
        how = step.text("behavior"), step.flag("invert", False)
        if how == ("Isolated", False) or (how == ("Removed", True) and _COVERS.search(expression)):
            return (expression,)
    raise _unknown(f"cuts text by {quoted(kind)}")


def _spelled(pattern: str) -> str:
    """One spelling for expressions that differ only in how they write a character."""
    pattern = re.sub(r"\\x\{([0-9A-Fa-f]{1,5})\}", lambda match: chr(int(match[1], 16)), pattern)
    return pattern.replace("\r", r"\r").replace("\n", r"\n").replace("\t", r"\t").replace(r"\"", '"')


def _unknown(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"The checkpoint's tokenizer.json {what}, which is not known here. Try a GGUF file of the model."
    )
