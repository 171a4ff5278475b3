"""Texts of many scripts and shapes, on which tokenizers are compared."""

from __future__ import annotations

TEXTS = (
    "",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t",
    " \n \n",
    "Hello world",
    " Hello  world ",
    "  leading\n  and\ttrailing  \n",
    "I'm you're WE'LL they'd It'S don'T 'hello' a'b'c ''s",
    "1 12 123 1234 12345 123456 1234567 1,234,567.89 1.5e10",
    "３４ ½ ² Ⅷ ١٢٣",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n",
    "#include <stdio.h>\r\nint main() { return 0; }\r\n\r\n",
    "日本語のテキスト、中文字符。한국어 텍스트",
    "漢字かなカナ㐀𠀀 mixed漢字and English混合text",
    "Привет, мир! Ёлка ελληνικά Ώμέγα",
    "العربية نص ،۔ עברית",
    "हिन्दी में पाठ বাংলা ไทยภาษา",
    "🙂🙃 👩‍👩‍👧‍👦 🇫🇷 ❤️ 😀😀😀",
    "café naïve Å éÉèÈ ﬁ ﬂ ſ ß ẞ İ ı ǅ ʰʱ ªº",
    "!!!???...;;;---===+++<<<>>>|||",
    "a\u00a0b\u2003c\u3000d\u200be",
    "foo/bar\\baz _under_score__ __init__ iPhone",
    "$100 €50 ¥20 £1 ^caret `tick` ~tilde „quote“ «quote» …",
    "x" * 70,
    " " * 50 + "y" + " " * 7,
    "<|im_start|>user\n<s></s>[INST] <unk> <0x41>",
    "\x7f\x02\x01",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "2024-01-02T03:04:05Z",
)
"""All in normal form C."""

DECOMPOSED = "cafe\u0301 A\u030a \u1100\u1161\u11a8"
"""A text that normal form C changes."""
