"""How byte-level vocabularies cut a text into words before merging, by the name in `tokenizer.ggml.pre`.

Which name means which expression is defined by llama.cpp (src/llama-vocab.cpp, `llm_tokenizer_bpe` and
`llama_vocab::impl::load`, read at commit 00ad355e). Where it had to rewrite a model's own expression for want of
Unicode classes, the model's own stands here (its comment "original regex from tokenizer.json"; for Kimi K2 `pat_str`
of the model's tokenization_kimi.py). NFC comes from the classes of Transformers that made the vocabularies:
Qwen2Tokenizer, Qwen3_5Tokenizer, GPTNeoXTokenizer (olmo, mpt), CohereTokenizer (command-r).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class PreTokenizer:
    """`patterns` are applied one after the other, each cutting the pieces that the one before left.

    What a pattern matches becomes a piece, and so does what lies between two matches. `whole_words`: a piece that is
    itself a token is taken as it is, whatever the merges say. `nfc`: the text is first brought into Unicode's
    normal form C. `add_bos` is what holds where the file does not say.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    nfc: bool = False
    add_bos: bool = False


_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SUFFIX: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS: Final = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}"
_WORD: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"

# cl100k and its kin differ in how many digits make a piece.
_DIGITS_BY_3: Final = rf"{_SUFFIX}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}"
_DIGITS_BY_1: Final = rf"{_SUFFIX}|{_WORD}|\p{{N}}|{_SYMBOLS}"
_QWEN35: Final = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
)

# o200k and its kin also cut where lower case turns into upper case.
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD: Final = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS_SLASH: Final = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
_CASED: Final = rf"{_LEAD}{_UPPER}*{_LOWER}+{_SUFFIX}?|{_LEAD}{_UPPER}+{_LOWER}*{_SUFFIX}?"
_O200K: Final = rf"{_CASED}|\p{{N}}{{1,3}}|{_SYMBOLS_SLASH}"
_TEKKEN: Final = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS_SLASH}"
_KIMI_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_KIMI: Final = (
    rf"[\p{{Han}}]+|{_LEAD}{_KIMI_UPPER}*{_KIMI_LOWER}+{_SUFFIX}?|{_LEAD}{_KIMI_UPPER}+{_KIMI_LOWER}*{_SUFFIX}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS}"
)

# Groups of three digits counted from the right. The expressions that the models have look to the end of the number from
# every digit of it, which takes a minute where somebody pastes 100,000 digits; these look 510 digits far.
_DIGITS_FROM_THE_RIGHT: Final = r"\d{1,3}(?=(?:\d{3}){0,170}\b)"
_BEFORE_GROUPS_OF_3: Final = r"(?=(?:\d{3}){1,170}(?!\d))"

_DEEPSEEK_HAN: Final = r"[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_LETTERS: Final = (
    # The characters in hexadecimal have a canonical equivalent, into which an editor may turn them.
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌ"
    r"ῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
_DEEPSEEK_PUNCTUATION: Final = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"
_DEEPSEEK3_WORDS: Final = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}"
)

_PLAIN_GPT2: Final = PreTokenizer((_GPT2,))
_SINGLE_DIGITS: Final = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3: Final = PreTokenizer((_DIGITS_BY_3,), whole_words=True, add_bos=True)
_CL100K: Final = PreTokenizer((_DIGITS_BY_3,))
_QWEN2: Final = PreTokenizer((_DIGITS_BY_1,), nfc=True)
_QWEN2_UNNORMALISED: Final = PreTokenizer((_DIGITS_BY_1,))
_GPT4O: Final = PreTokenizer((_O200K,))
_DEEPSEEK3: Final = PreTokenizer((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3_WORDS))
_BLOOM: Final = PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+",))
_BAILING: Final = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)

PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = MappingProxyType(
    {
        "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
        "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
        **dict.fromkeys(
            ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais", "trillion", "granite-docling"),
            _PLAIN_GPT2,
        ),
        **dict.fromkeys(("olmo", "mpt"), replace(_PLAIN_GPT2, nfc=True)),
        **dict.fromkeys(
            ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), _SINGLE_DIGITS
        ),
        "command-r": replace(_SINGLE_DIGITS, nfc=True),
        **dict.fromkeys(
            ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
            _LLAMA3,
        ),
        # Smaug and SmolLM3 have Llama 3's tokenizer.json but for its beginning token (llama.cpp pull request 14581).
        "smaug-bpe": replace(_LLAMA3, add_bos=False),
        **dict.fromkeys(("dbrx", "glm4", "chatglm-bpe"), _CL100K),
        "minicpm5": PreTokenizer(
            (r"\p{N}{1,3}", rf"{_SUFFIX}|{_WORD}|\p{{N}}+|{_SYMBOLS}"),
            whole_words=True,
        ),
        **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "f2llmv2"), _QWEN2),
        **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2", "megrez", "kormo"), _QWEN2_UNNORMALISED),
        "qwen35": PreTokenizer((_QWEN35,), nfc=True),
        "laguna": PreTokenizer((r"[^\n]+|[\n]+", _DIGITS_BY_1)),
        "seed-coder": PreTokenizer((rf"{_SUFFIX}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}",)),
        "tekken": PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
        **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
        # Of those with the expression of o200k the one that takes whole words; some checkpoints of GPT-OSS are such.
        "granite-embed-multi-97m": replace(_GPT4O, whole_words=True),
        **dict.fromkeys(("tiny_aya", "cohere2moe"), PreTokenizer((_DIGITS_FROM_THE_RIGHT, _O200K))),
        "superbpe": PreTokenizer((r"\p{N}+", _BEFORE_GROUPS_OF_3)),
        "kimi-k2": PreTokenizer((_KIMI,)),
        "deepseek-llm": PreTokenizer(
            # The model's tokenizer.json splits into single digits (shown in llama.cpp pull request 7033).
            (r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_PUNCTUATION, r"\s+$", _DEEPSEEK_HAN, r"\p{N}")
        ),
        "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_HAN, r"\p{N}")),
        **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), _DEEPSEEK3),
        **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
        **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), _BLOOM),
        "viking": PreTokenizer((*_BLOOM.patterns, r"\p{N}")),
    }
)
"""Every known name. A table, read only."""
