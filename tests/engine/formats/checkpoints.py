"""Checkpoints as Transformers publishes them, with tokenizers made by the `tokenizers` library."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel

from tests.engine.text.texts import TEXTS
from tests.engine.text.vocabularies import PROSE, SPECIAL

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}"
QWEN2 = rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}"
QWEN35 = rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_ENDS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_ENDS}"
)
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    # The line ends are written out, as in the published file.
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def _split(*patterns: str) -> Any:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


FORMS: dict[str, tuple[Any, Any, bool]] = {
    "llama-bpe": (_split(LLAMA3), None, True),
    "qwen2": (_split(QWEN2), normalizers.NFC(), False),
    "qwen35": (_split(QWEN35), normalizers.NFC(), False),
    "deepseek-v3": (_split(*DEEPSEEK3), normalizers.Sequence([]), False),
    "gpt-4o": (_split(O200K), None, False),
    "granite-embed-multi-97m, as GPT-OSS": (_split(O200K), None, True),
    "llama-bpe, as first published": (
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA3), "removed", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        None,
        True,
    ),
    "gpt-2": (pre_tokenizers.ByteLevel(add_prefix_space=False), None, False),
    "smollm": (
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        None,
        False,
    ),
}
"""The `pre_tokenizer`, `normalizer` and `ignore_merges` of published tokenizer.json files. A form's name begins with
one that llama.cpp gives to it."""


def byte_level(form: str, *, size: int = 600, bos: str | None = None) -> Tokenizer:
    """Merges learned from prose; `SPECIAL` as special tokens, and one that is added but ordinary."""
    cuts, normalizer, whole_words = FORMS[form]
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole_words))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = cuts
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL) - 1,
        show_progress=False,
        min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if size > 256 else [],
    )
    tokenizer.train_from_iterator([*PROSE, *TEXTS] if size > 256 else ["the mill"], trainer)
    return _finish(tokenizer, bos)


def sentencepiece(
    *, space_prefix: bool = True, bos: str | None = "<s>", metaspace: tuple[str, bool] | None = None
) -> Tokenizer:
    """As in Llama 2's file: merges over U+2581, all 256 bytes, unk, bos, eos.

    `metaspace`, a scheme and whether to split, is as in newer files and takes the place of `space_prefix`.
    """
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, min_frequency=1)
    learned.train_from_iterator([text.replace(" ", "▁") for text in (*PROSE, *TEXTS) if "<" not in text], trainer)
    model = json.loads(learned.to_str())["model"]
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {token: number for number, token in enumerate([*first, *(t for t in model["vocab"] if t not in first)])}
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    prefix = [normalizers.Prepend("▁")] if space_prefix else []
    if metaspace is None:
        tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", *metaspace)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return _finish(tokenizer, bos, added=False)


def _finish(tokenizer: Tokenizer, bos: str | None, *, added: bool = True) -> Tokenizer:
    if added:
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
        tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    if bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, **settings: object) -> None:
    """tokenizer.json, and tokenizer_config.json with `settings`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    defaults = {"bos_token": SPECIAL[0], "eos_token": {"content": SPECIAL[2], "special": True}}
    defaults |= {"chat_template": TEMPLATE}
    change(folder / "tokenizer_config.json", **(defaults | settings))


def write_checkpoint(
    folder: Path,
    model: PreTrainedModel,
    *,
    dtype: torch.dtype = torch.float32,
    shard: str = "5GB",
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Publish the model, and give it the rounded weights that the files now hold. `shard` is the most bytes a file."""
    # The model itself is not cast: that would round its rotary frequencies too.
    copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=shard)
    with torch.no_grad():
        for values in model.parameters():
            values.copy_(values.to(dtype))
    write_tokenizer(folder, tokenizer or byte_level("gpt-2", size=33))
    return folder


def change(path: Path, **values: object) -> None:
    """Set keys of a JSON file; `...` takes a key away."""
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    content |= values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf-8")
