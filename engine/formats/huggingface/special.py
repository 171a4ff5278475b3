"""Which tokens begin and end a text, and the chat template: from four files of a checkpoint."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.cursor import opened
from engine.formats.huggingface.fields import Fields
from engine.formats.json_text import read_object
from engine.formats.recognise import check_file
from engine.text.tokenizer import END_OF_TURN

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
GENERATION_CONFIG: Final = "generation_config.json"
TEMPLATE: Final = "chat_template.jinja"
OLDER_TEMPLATE: Final = "chat_template.json"
"""Of models that see, which may have it nowhere else."""

MAX_BYTES: Final = 1 << 24
"""tokenizer_config.json repeats the added tokens: some 1 MB where there are thousands."""

MAX_TEMPLATE: Final = 1 << 20
END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")


def special_tokens(folder: Path, config: Fields, tokenizer: Fields, ids: Mapping[str, int]) -> dict[str, object]:
    """The keys `bos_token_id`, `add_bos_token` and `END_KEYS`, and `chat_template`, as far as the files name them."""
    settings = _optional(folder, TOKENIZER_CONFIG)
    generation = _optional(folder, GENERATION_CONFIG)
    keys: dict[str, object] = {}
    first = _first_token(tokenizer)
    bos = _token_id(first, ids) if first else _named(settings, "bos_token", ids)
    if bos is not None:
        keys["bos_token_id"] = bos
    # What tokenizer.json adds is what the model sees; the flag speaks for files that add by other means.
    adds = first is not None or ("post_processor" not in tokenizer and settings.flag("add_bos_token", False))
    keys["add_bos_token"] = adds and bos is not None
    ends = [_named(settings, "eos_token", ids), *_end_ids(generation, ids), *_end_ids(config, ids)]
    keys |= _end_keys(list(dict.fromkeys(end for end in ends if end is not None)), ids)
    template = _template(folder, settings)
    return keys if template is None else keys | {"chat_template": template}


def _first_token(tokenizer: Fields) -> str | None:
    """The token that the post-processor puts before every text, if it does."""
    step = tokenizer.fields("post_processor")
    steps = [step] if step is not None else []
    inner = step.get("processors") if step is not None and step.get("type") == "Sequence" else None
    if isinstance(inner, list):
        steps = [Fields(part, "post_processor") for part in inner if isinstance(part, dict)]
    for step in steps:
        single = step.get("single")
        if step.get("type") == "TemplateProcessing" and isinstance(single, list) and single:
            token = single[0].get("SpecialToken") if isinstance(single[0], dict) else None
            if isinstance(token, dict) and isinstance(token.get("id"), str):
                return str(token["id"])
    return None


def _named(settings: Fields, key: str, ids: Mapping[str, int]) -> int | None:
    """The id of a token that is given as text, or as an object with its `content`."""
    value = settings.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return _token_id(value, ids) if isinstance(value, str) else None


def _token_id(token: str, ids: Mapping[str, int]) -> int:
    if token not in ids:
        raise ModelFileError(
            f"{TOKENIZER_CONFIG} or tokenizer.json names the token {token[:64]!r}, which is not in the vocabulary: the "
            "files belong to different models. Download them again."
        )
    return ids[token]


def _end_ids(fields: Fields, ids: Mapping[str, int]) -> list[int]:
    """`eos_token_id`: one id, or a list of them."""
    value = fields.get("eos_token_id")
    ends: list[int] = []
    for end in value if isinstance(value, list) else [] if value is None else [value]:
        if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < len(ids):
            raise ModelFileError(
                f"eos_token_id in {fields.where} holds {reprlib.repr(end)}, which is not an id of the vocabulary. "
                "Download it again."
            )
        ends.append(end)
    return ends


def _end_keys(ends: list[int], ids: Mapping[str, int]) -> dict[str, object]:
    """The end tokens over the keys that there are. Those that end a turn by their text need none."""
    known = {ids[text] for text in END_OF_TURN if text in ids}
    first, others = ends[:1], sorted(ends[1:], key=lambda end: end in known)
    if any(end not in known for end in others[len(END_KEYS) - 1 :]):
        raise UnsupportedModelError(f"The checkpoint names {len(ends)} tokens that end a turn, more than can be kept.")
    return dict(zip(END_KEYS, first + others, strict=False))


def _template(folder: Path, settings: Fields) -> str | None:
    """A file of its own counts before what tokenizer_config.json holds, as in Transformers."""
    path = folder / TEMPLATE
    if os.path.isfile(path):
        check_file(path)
        with opened(path) as file:
            data = file.read(MAX_TEMPLATE + 1)
        try:
            if len(data) <= MAX_TEMPLATE:
                return data.decode()
        except UnicodeDecodeError:
            pass
        raise ModelFileError(f"{TEMPLATE} is damaged: it is too long, or not valid UTF-8. Download it again.")
    value = (_optional(folder, OLDER_TEMPLATE) if "chat_template" not in settings else settings).get("chat_template")
    if isinstance(value, list):
        named = (entry for entry in value if isinstance(entry, dict) and entry.get("name") == "default")
        value = next(named, {}).get("template")
    return value if isinstance(value, str) else None


def _optional(folder: Path, name: str) -> Fields:
    """The values of a file that not every checkpoint has."""
    path = folder / name
    return Fields(read_object(path, limit=MAX_BYTES) if os.path.isfile(path) else {}, name)
