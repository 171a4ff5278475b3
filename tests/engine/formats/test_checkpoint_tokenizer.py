"""The tokenizer of a checkpoint, judged by the `tokenizers` library's own run of the same tokenizer.json."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, pre_tokenizers, processors
from tokenizers import Tokenizer as Judge

from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats.huggingface.fields import Fields
from engine.formats.huggingface.tokenizer import tokenizer_metadata
from engine.text import Tokenizer
from engine.text.pretokenizers import PRE_TOKENIZERS
from engine.text.template import ChatTemplate
from engine.types import Message
from tests.engine.formats.checkpoints import FORMS, TEMPLATE, byte_level, change, sentencepiece, write_tokenizer
from tests.engine.text import families
from tests.engine.text.texts import DECOMPOSED, TEXTS
from tests.engine.text.vocabularies import SPECIAL, K

ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGH ",
    "0123456789.,- ",
    " \t\n\r\u00a0\u3000",
    "!?#$%&'()*+/:;<=>@[\\]^_`{|}~",
    "éüßñçÅİıſ\u0301\u030a\u0f71",
    "漢字かなカナ한글文",
    "🙂👩\u200d👧🇫🇷❤\ufe0f",
    "Приветмир العربية हिन्दी",
    "\0\x01\x7f\ufeff\u2028",
)


def fuzzed(count: int, seed: int = 5) -> list[str]:
    """Runs from few alphabets at a time, so that boundaries of every kind occur, and long runs of one character."""
    draws = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(draws.randint(1, 8)):
            alphabet = draws.choice(ALPHABETS)
            length = draws.choice((1, 2, 3, 5, 9))
            parts.append(
                draws.choice(alphabet) * 40
                if draws.random() < 0.05
                else "".join(draws.choice(alphabet) for _ in range(length))
            )
            if draws.random() < 0.1:
                parts.append(draws.choice((*SPECIAL, "<s>", "</s>", "<unk>", "<think>", " the mill's")))
        texts.append("".join(parts))
    return [*texts, *TEXTS, DECOMPOSED]


def read(folder: Path, rows: int = 2000) -> dict[str, object]:
    return tokenizer_metadata(folder, Fields({}, "config.json"), rows)


def compare(folder: Path, judge: Judge) -> None:
    """Special tokens as themselves, then as the text of a person who wrote them."""
    ours = Tokenizer.from_metadata(read(folder))
    for text in fuzzed(300):
        assert ours.encode(text, parse_special=True, add_bos=ours.add_bos) == judge.encode(text).ids, text
    judge.encode_special_tokens = True
    for text in fuzzed(300, seed=6):
        assert ours.encode(text, parse_special=False, add_bos=False) == judge.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("bos", [None, SPECIAL[0]])
@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_encoded_as_by_the_library(form: str, bos: str | None, folder: Path) -> None:
    judge = byte_level(form, bos=bos)
    write_tokenizer(folder, judge)
    assert PRE_TOKENIZERS[read(folder)[f"{K}pre"]] == PRE_TOKENIZERS[form.partition(",")[0]]
    compare(folder, judge)


@pytest.mark.parametrize("space_prefix", [True, False])
def test_pieces_are_encoded_as_by_the_library(space_prefix: bool, folder: Path) -> None:
    judge = sentencepiece(space_prefix=space_prefix)
    write_tokenizer(folder, judge, bos_token="<s>", eos_token="</s>")
    compare(folder, judge)


def test_pieces_are_merged_by_the_files_own_list_alone(folder: Path) -> None:
    """Not by every join that leads to a token, nor in another order."""
    write_tokenizer(folder, sentencepiece(), bos_token="<s>", eos_token="</s>")
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    merges = [merge for number, merge in enumerate(model["merges"]) if number % 3]
    random.Random(1).shuffle(merges)
    change(folder / "tokenizer.json", model=model | {"merges": merges})
    compare(folder, Judge.from_file(str(folder / "tokenizer.json")))


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("scheme", ["never", "always", "first"])
def test_blanks_of_newer_files_are_put_and_taken_off_as_by_the_library(scheme: str, split: bool, folder: Path) -> None:
    judge = sentencepiece(metaspace=(scheme, split))
    strip = [] if scheme == "never" else [decoders.Strip(" ", 1, 0)]
    judge.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    write_tokenizer(folder, judge, bos_token="<s>", eos_token="</s>")
    compare(folder, judge)
    judge.encode_special_tokens = False
    ours = Tokenizer.from_metadata(read(folder))
    for text in ("<s>the mill</s> the mill", " the", "  the  mill", "▁the", "the▁mill", "", " ", *fuzzed(300, seed=7)):
        ids = judge.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=True, add_bos=False) == ids, text
        assert ours.decode(ids) == judge.decode(ids, skip_special_tokens=True), text


@pytest.mark.parametrize("prefix", [True, False])
def test_the_older_form_of_metaspace_is_read(prefix: bool, folder: Path) -> None:
    write_tokenizer(folder, sentencepiece(metaspace=("always", True)), bos_token="<s>", eos_token="</s>")
    scheme = {} if prefix else {"prepend_scheme": "never"}
    step = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": prefix} | scheme
    change(folder / "tokenizer.json", pre_tokenizer=step)
    compare(folder, Judge.from_file(str(folder / "tokenizer.json")))


@pytest.mark.parametrize("form", ["Gemma 2, Gemma 3", "Gemma 4"])
def test_gemma_is_encoded_and_decoded_as_by_the_library(form: str, folder: Path) -> None:
    judge, _ = families.sentencepiece(form)
    bos = families.SPECIAL[0]
    judge.post_processor = processors.TemplateProcessing(f"{bos} $A", None, [(bos, judge.token_to_id(bos))])
    write_tokenizer(folder, judge, bos_token=bos, eos_token="<|im_end|>")
    ours = Tokenizer.from_metadata(read(folder))
    # A blank that a text writes as its sign may stand in a token of its own there; bos is never doubled here.
    texts = [text for text in (*families.fuzzed(300, 7), *fuzzed(300)) if "\u2581" not in text]
    assert len(texts) > 500 and any(" " * 33 in text for text in texts)
    for text in texts:
        judge.encode_special_tokens = False
        ids = judge.encode(text).ids
        if not text.startswith(bos):
            assert ours.encode(text, parse_special=True, add_bos=ours.add_bos) == ids, text
            assert ours.decode(ids, skip_special=False) == judge.decode(ids, skip_special_tokens=False), text
        judge.encode_special_tokens = True
        ids = judge.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=False, add_bos=False) == ids, text


def test_phi_3_swallows_the_blanks_after_its_special_tokens(folder: Path) -> None:
    judge, _ = families.sentencepiece("Phi-3")
    write_tokenizer(folder, judge, bos_token="<s>", eos_token="<|im_end|>")
    with pytest.raises(UnsupportedModelError, match="surroundings"):
        read(folder)
    config = Fields({"model_type": "phi3"}, "config.json")
    metadata = tokenizer_metadata(folder, config, 2000) | {"general.architecture": "phi3"}
    ours = Tokenizer.from_metadata(metadata)
    for text in (*families.fuzzed(300, 7), *fuzzed(300)):
        judge.encode_special_tokens = False
        ids = judge.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=True, add_bos=False) == ids, text
        judge.encode_special_tokens = True
        ids = judge.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, parse_special=False, add_bos=False) == ids, text


def test_merges_written_as_text_are_read_too(folder: Path) -> None:
    judge = byte_level("qwen2")
    write_tokenizer(folder, judge)
    pairs = read(folder)[f"{K}merges"]
    model = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    assert isinstance(model["merges"][0], list)
    change(folder / "tokenizer.json", model=model | {"merges": [" ".join(merge) for merge in model["merges"]]})
    assert read(folder)[f"{K}merges"] == pairs


def test_ids_without_a_token_are_padded_and_tokens_beyond_the_model_left_out(folder: Path) -> None:
    judge = byte_level("qwen2")
    size = judge.get_vocab_size()
    judge.add_special_tokens([AddedToken("<image>", normalized=False)])
    write_tokenizer(folder, judge)
    assert read(folder, size)[f"{K}tokens"][-1] == "<think>"
    metadata = read(folder, size + 3)
    assert metadata[f"{K}tokens"][-3:] == ["<image>", f"[PAD{size + 1}]", f"[PAD{size + 2}]"]
    assert metadata[f"{K}token_type"][-4:] == [4, 3, 5, 5]
    with pytest.raises(ModelFileError, match=r"id that is none of 0 to 99"):
        read(folder, 100)


def test_every_end_token_is_kept_and_the_template_rendered(folder: Path) -> None:
    judge = byte_level("llama-bpe", bos=SPECIAL[0])
    write_tokenizer(folder, judge)
    other = judge.token_to_id("<think>")
    change(folder / "generation_config.json", eos_token_id=[judge.token_to_id("<|im_end|>"), other])
    metadata = read(folder)
    ours = Tokenizer.from_metadata(metadata)
    assert ours.eos_ids == {judge.token_to_id("<|im_end|>"), other}
    rendered = ChatTemplate.from_metadata(metadata, ours).render([Message("user", "Hi")])
    assert rendered == "<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("form", ["file", "older file", "named", "text", "none"])
def test_the_template_is_found_in_each_place(form: str, folder: Path) -> None:
    write_tokenizer(folder, byte_level("qwen2"), chat_template="old")
    if form == "file":
        (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    elif form == "older file":
        change(folder / "tokenizer_config.json", chat_template=...)
        change(folder / "chat_template.json", chat_template=TEMPLATE)
    elif form == "named":
        named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": TEMPLATE}]
        change(folder / "tokenizer_config.json", chat_template=named)
    elif form == "text":
        change(folder / "tokenizer_config.json", chat_template=TEMPLATE)
    else:
        (folder / "tokenizer_config.json").unlink()
    assert read(folder).get("tokenizer.chat_template") == (None if form == "none" else TEMPLATE)


def test_more_ends_than_there_are_keys_are_refused_unless_their_text_tells(folder: Path) -> None:
    judge = byte_level("qwen2")
    judge.add_special_tokens(["<|eot_id|>", "<|eom_id|>", "<|end|>"])
    write_tokenizer(folder, judge)
    known = [judge.token_to_id(token) for token in ("<|eot_id|>", "<|eom_id|>", "<|end|>")]
    change(folder / "generation_config.json", eos_token_id=[*known, 7])
    assert Tokenizer.from_metadata(read(folder)).eos_ids == {judge.token_to_id("<|im_end|>"), *known, 7}
    change(folder / "generation_config.json", eos_token_id=[7, 8, 9])
    with pytest.raises(UnsupportedModelError, match="4 tokens that end a turn"):
        read(folder)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"model": {"type": "Unigram", "vocab": []}}, "'Unigram'; known is BPE"),
    "words": ({"pre_tokenizer": {"type": "Whitespace"}}, "neither on bytes"),
    "prefix": ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "blank before every text"),
    "normalizer": ({"normalizer": {"type": "Lowercase"}}, "'Lowercase', which is not known"),
    "expression": (
        {
            "pre_tokenizer": json.loads(
                pre_tokenizers.Sequence(
                    [pre_tokenizers.Split(Regex("x+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
                ).__getstate__()
            )
        },
        r"'x\+'",
    ),
    "another sign": (
        {"model": {"type": "BPE", "vocab": {}, "merges": [], "byte_fallback": True}, "normalizer": None}
        | {"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}},
        "'Metaspace' with '_' and 'always'",
    ),
    "surroundings": (
        {"added_tokens": [{"id": 3, "content": "x", "special": True, "rstrip": True}]},
        "takes its surroundings",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_is_refused_by_name(case: str, folder: Path) -> None:
    write_tokenizer(folder, byte_level("qwen2"))
    changes, told = REFUSED[case]
    change(folder / "tokenizer.json", **changes)
    with pytest.raises(UnsupportedModelError, match=told):
        read(folder)


def test_a_missing_tokenizer_is_named(folder: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json"):
        read(folder)
    (folder / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(UnsupportedModelError, match=r"older form tokenizer\.model"):
        read(folder)


def test_damage_anywhere_in_the_tokenizer_is_a_sentence(folder: Path) -> None:
    """One value after the other replaced by each of some wrong ones, in all three files."""
    judge = byte_level("qwen2", size=33, bos=SPECIAL[0])
    write_tokenizer(folder, judge)
    change(folder / "generation_config.json", eos_token_id=[1, 2])
    wrong = (None, True, -1, 10**40, "", [], [[]], {}, {"type": []})
    refused = 0
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        path = folder / name
        sound = path.read_text("utf-8")
        for route in _routes(json.loads(sound)):
            for value in wrong:
                content = json.loads(sound)
                _put(content, route, value)
                path.write_text(json.dumps(content), "utf-8")
                try:
                    Tokenizer.from_metadata(read(folder, 64))
                except MillstreamError as error:
                    refused += 1
                    assert len(str(error)) < 2000
        path.write_text(sound, "utf-8")
    assert refused > 300


def _routes(value: object, depth: int = 5) -> list[tuple[object, ...]]:
    """The ways to values, the first two entries of long containers only."""
    if depth == 0 or not isinstance(value, dict | list):
        return []
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    shown = pairs[:2] if len(pairs) > 20 else pairs
    return [(key, *rest) for key, inner in shown for rest in ((), *_routes(inner, depth - 1))]


def _put(content: Any, route: tuple[Any, ...], value: object) -> None:
    for key in route[:-1]:
        content = content[key]
    content[route[-1]] = value
