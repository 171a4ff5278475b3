"""Tokenizers in the form in which each family of models publishes its `tokenizer.json`, and the same as GGUF metadata.

Form: the normalizer, pre-tokenizer, decoder and BPE options of the published file. The expressions are those that
Transformers carries where it carries them, else those of the published file that is named. What is learned is small,
and learned without regard to words, so that a cut which is missing or too many changes the ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.integrations.gguf import gguf_tokenizer_mapping as published
from transformers.tokenization_utils_base import generate_merges

from engine.text.pretokenizers import PRE_TOKENIZERS
from tests.engine.text.texts import DECOMPOSED, TEXTS
from tests.engine.text.vocabularies import BYTE, CONTROL, NORMAL, PROSE, UNKNOWN, USER_DEFINED, K

SPECIAL = ("<|begin|>", "<|im_start|>", "<|im_end|>", "<s>")
USER = ("<think>", "</think>")

WORDS = """
🙂 👩\u200d👩\u200d👧 🇫🇷 \u2764\ufe0f 👍🏽
日本語 漢字 ひらがな カタカナ 한국어 㐀 𠀀 一龥 、。 ！？
e\u0301 a\u0308\u0323 \u1100\u1161\u11a8 नि \u0e19\u0e49 \u05e9\u05c1 \u0301 \u20dd
's 'S 't 're 'RE 'Ve 'm 'll 'LL 'd I'm don't we'Ll ''s 'x \u2019s ' ſ's
0 1 12 123 1234 12345 1234567 3.14 1,000 ½ ² Ⅷ ٣٤ ３
the The THE wheel Wheels iPhone HTTPServer straße ÉCOLE Привет ελληνικά naïve ǅ ʰ ª İ
! !! ... --- == <<>> // /* \\ @ # $ € ^ ` ~ _ __init__ ( ) [ ] { } | « » „ … +-
<|im_ start|> <s </ think> <0x41> <unk>
"""
BLANKS = (
    *(" ", "  ", "   ", " " * 7, " " * 16, " " * 31, "\t", "\t\t", "\u00a0", "\u3000", " \t "),
    *("\n", "\n\n", "\n\n\n", "\r\n", "\r", "\r\n\r\n", " \n", "\n ", "\n\n  ", "\v", "\f", "\u2028", "\u0085"),
)
UNSEEN = ("\0", "\0\0", "\x7f", "\x02", "\ufeff", "\u200b", "\u00ad", "\ufffd", "\u2581", "\u2581\u2581")
FUZZ: Sequence[str] = (*WORDS.split(), *BLANKS, *UNSEEN, *SPECIAL, *USER)


def fuzzed(count: int, seed: int) -> list[str]:
    """Texts of every kind of piece in any order, with a character from anywhere in Unicode now and then."""
    draws = random.Random(seed)
    texts = []
    for _ in range(count):
        pieces = draws.choices(FUZZ, k=draws.randrange(1, 14))
        for _ in range(draws.randrange(3)):
            code = draws.randrange(0x20, draws.choice((0x250, 0x3000, 0x20000)))
            if not 0xD800 <= code < 0xE000:
                pieces.insert(draws.randrange(len(pieces) + 1), chr(code))
        texts.append("".join(pieces))
    return texts


# Without what could make a special token's text something that merges lead to.
CORPUS = [text for text in (*PROSE, *TEXTS, DECOMPOSED, *fuzzed(400, seed=1)) if "<" not in text]


@dataclass(frozen=True)
class Family:
    """`steps` are the pre-tokenizers before the bytes; `pre` is what a GGUF file of the family says."""

    pre: str
    steps: Sequence[pre_tokenizers.PreTokenizer]
    nfc: bool = False
    ignore_merges: bool = False
    byte_level: pre_tokenizers.PreTokenizer = field(
        default_factory=lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    )


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated", invert=False)


def _kept(pattern: str) -> pre_tokenizers.PreTokenizer:
    """The way in which Xenova's conversions of tiktoken's vocabularies say it."""
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


_SPLITS = published.GGUF_PRE_TOKENIZER_SPLITS
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
# deepseek-ai/DeepSeek-V3, tokenizer.json.
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# deepseek-ai/DeepSeek-V2-Lite, tokenizer.json. Its list of cased letters is long, and stands in the table that is read.
_DEEPSEEK_LETTERS = PRE_TOKENIZERS["deepseek-llm"].patterns[1]

BYTE_LEVEL = {
    "Llama 3, BitNet": Family("llama-bpe", [_split(_SPLITS["llama-bpe"])], ignore_merges=True),
    "SmolLM3": Family("smaug-bpe", [_split(_SPLITS["smaug-bpe"])], ignore_merges=True),
    "SmolLM, SmolLM2, SmolVLM": Family("smollm", [pre_tokenizers.Digits(individual_digits=True)], byte_level=_GPT2),
    "Mistral Nemo": Family("tekken", [_split(_SPLITS["tekken"])], ignore_merges=True),
    "Qwen 2, Qwen 3": Family("qwen2", [_split(_SPLITS["qwen2"])], nfc=True),
    "Qwen 3.5": Family("qwen35", [_split(_SPLITS["qwen35"])], nfc=True),
    "DeepSeek R1 on Qwen": Family("deepseek-r1-qwen", [_split(_SPLITS["qwen2"])], nfc=True),
    "DeepSeek V2": Family(
        "deepseek-llm",
        [
            _split(r"[\r\n]"),
            _split(_DEEPSEEK_LETTERS),
            _split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
            _split(r"\s+$"),
            _split(r"[一-龥ࠀ-一가-퟿]+"),
            pre_tokenizers.Digits(individual_digits=True),
        ],
    ),
    "DeepSeek V3, R1": Family("deepseek-v3", [_split(r"\p{N}{1,3}"), _split(r"[一-龥぀-ゟ゠-ヿ]+"), _split(_DEEPSEEK3)]),
    "GPT-OSS": Family("gpt-4o", [_split(_SPLITS["gpt-4o"])]),
    "o200k, whole words": Family("granite-embed-multi-97m", [_split(_SPLITS["gpt-4o"])], ignore_merges=True),
    "Phi-4-mini": Family("gpt-4o", [_kept(_SPLITS["gpt-4o"])]),
    "Phi-4": Family("dbrx", [_kept(_SPLITS["dbrx"])]),
    "Phi-2": Family("phi-2", [], byte_level=_GPT2),
    "GPT-2": Family("gpt-2", [], byte_level=_GPT2),
}
"""By the models that have the form."""

SENTENCEPIECE = ("Llama 2, Mistral 7B", "Phi-3", "Gemma 2, Gemma 3", "Gemma 4")


def byte_level(family: Family) -> tuple[Tokenizer, dict[str, object]]:
    """The library's tokenizer, read from its tokenizer.json, and the metadata of a GGUF file of it."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, max_token_length=24
    )
    learned.train_from_iterator(CORPUS, trainer)
    model = json.loads(learned.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    # In another order they do not lead to every token, so that it shows whether a whole word is taken as it is.
    random.Random(3).shuffle(merges)
    made = Tokenizer(models.BPE(model["vocab"], merges, ignore_merges=family.ignore_merges))
    if family.nfc:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([*family.steps, family.byte_level])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in USER])
    return _as_published(made, "gpt2", {f"{K}pre": family.pre, f"{K}add_bos_token": False})


def sentencepiece(form: str) -> tuple[Tokenizer, dict[str, object]]:
    """As `byte_level`, for one of `SENTENCEPIECE`."""
    prefix = not form.startswith("Gemma")
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    learned.train_from_iterator(
        [text.replace(" ", "▁") for text in CORPUS],
        trainers.BpeTrainer(vocab_size=900, show_progress=False, max_token_length=12),
    )
    saved = json.loads(learned.to_str())["model"]
    merged = list(dict.fromkeys(left + right for left, right in saved["merges"]))
    # Gemma lists its runs of blanks and line ends as tokens; a GGUF file has the blanks as they are.
    runs = [] if prefix else [char * n for char in "\n▁" for n in range(2, 32)]
    tokens = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *runs]
    tokens += [text for text in dict.fromkeys((*merged, *sorted(saved["vocab"]))) if text not in tokens]
    scores = {text: -float(rank) for rank, text in enumerate(tokens) if rank > 256 + len(SPECIAL)}
    vocab = {text: rank for rank, text in enumerate(tokens)}
    made = Tokenizer(
        models.BPE(vocab, generate_merges(vocab, scores), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    unprefixed = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence([*unprefixed, decoders.Strip(" ", 1, 0)])
    else:
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.decoder = decoders.Sequence(unprefixed)
    made.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False, rstrip=form == "Phi-3" and text not in ("<unk>", "<s>"))
            for text in ("<unk>", *SPECIAL)
        ]
    )
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*runs, *USER)])
    more: dict[str, object] = {f"{K}add_space_prefix": prefix, f"{K}bos_token_id": 1}
    if form == "Phi-3":
        more["general.architecture"] = "phi3"
    if form == "Gemma 4":
        return _as_published(made, "gemma4", more)
    lowest = -float(len(tokens))
    more[f"{K}scores"] = [scores.get(made.id_to_token(n), lowest) for n in range(made.get_vocab_size())]
    return _as_published(made, "llama", more)


def _as_published(made: Tokenizer, model: str, more: dict[str, object]) -> tuple[Tokenizer, dict[str, object]]:
    text = made.to_str()
    saved = json.loads(text)
    added = {token["id"]: token["special"] for token in saved["added_tokens"]}
    tokens = [made.id_to_token(token_id) for token_id in range(made.get_vocab_size())]

    def kind(token_id: int) -> int:
        if tokens[token_id] == "<unk>":
            return UNKNOWN
        if token_id in added:
            return CONTROL if added[token_id] else USER_DEFINED
        return BYTE if tokens[token_id].startswith("<0x") and model != "gpt2" else NORMAL

    metadata: dict[str, object] = {
        f"{K}model": model,
        f"{K}tokens": [text.replace("▁", " ") if kind(n) == USER_DEFINED else text for n, text in enumerate(tokens)],
        f"{K}token_type": [kind(token_id) for token_id in range(len(tokens))],
        **more,
    }
    if model != "llama":
        metadata[f"{K}merges"] = [" ".join(merge) for merge in saved["model"]["merges"]]
    return Tokenizer.from_str(text), metadata
