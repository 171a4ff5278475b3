"""Text → token ids and back, from what a GGUF file says of its tokenizer.

Source of keys, defaults and rules: the GGUF specification and llama.cpp (src/llama-vocab.cpp, read at commit 00ad355e).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from engine.errors import ModelFileError, SettingsError, UnsupportedModelError
from engine.heap import give_back
from engine.text import vocabulary as vocab
from engine.text.bpe import ByteLevel, pre_tokenizer
from engine.text.channels import ChannelForm, channel_form
from engine.text.conversation import texts
from engine.text.pictures import PICTURE, PictureForm
from engine.text.sentencepiece import Prefix, SentencePiece
from engine.text.special import SpecialTokens
from engine.text.template import KEY as CHAT_TEMPLATE
from engine.text.tools import ToolForm, tool_form
from engine.text.vocabulary import SPECIAL, TokenType, Vocabulary
from engine.types import Effort, Message, Tool

if TYPE_CHECKING:
    from engine.text.template import ChatTemplate

END_OF_TURN: Final = frozenset(
    {
        "<|im_end|>",  # ChatML
        "<|eot_id|>",  # Llama 3
        "<|eom_id|>",  # Llama 3, before a tool answers
        "<|eot|>",  # Llama 4
        "<|end|>",  # Phi 3
        "<end_of_turn>",  # Gemma
        "<turn|>",  # Gemma 4
        "<|tool_response>",  # Gemma 4, before a tool answers
        "<eos>",  # Gemma
        "<|endoftext|>",  # GPT-2 and its descendants
        "<|end_of_text|>",  # Llama 3, Granite
        "</s>",  # Llama 2, Mistral
        "<|return|>",  # gpt-oss
        "<|call|>",  # gpt-oss, before a tool answers
        "<|calls|>",  # Solar Open
        "<|flush|>",  # Solar Open
        "<EOT>",
        "_<EOT>",
        "[EOT]",  # Kimi
        "[EOS]",  # Kimi
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek
        "<end_of_utterance>",  # SmolVLM
        "<|END_OF_TURN_TOKEN|>",  # Command R
        "[e~[",  # MiniMax
    }
)
"""Texts that end a turn where they are CONTROL tokens."""

PREPEND_SCHEME: Final = "tokenizer.huggingface.prepend_scheme"
SPLIT: Final = "tokenizer.huggingface.split"
"""Keys of our own, for what only a tokenizer.json can say (`Metaspace`)."""

_MODELS: Final = ("gpt2", "llama", "gemma4")

KEEPS_BLANKS: Final = frozenset({"<unk>", "<s>", "<|endoftext|>"})
"""The special tokens of Phi 3 that do not swallow the blanks after them (`rstrip` in its tokenizer.json, which a GGUF
file does not carry)."""


class Codec(Protocol):
    """How one kind of vocabulary encodes ordinary text, and what bytes its tokens stand for.

    A stretch that is encoded is the `first` of a text, at its start, or stands after a CONTROL or user-defined token.
    """

    space_prefix: bool

    def encode(self, text: str, *, first: bool) -> list[int]: ...

    def token_bytes(self, token: str, kind: int) -> bytes: ...


class Tokenizer:
    """A model's tokenizer. Immutable, and safe to share between threads.

    `bos` is the id that begins a text, if the vocabulary has one, and `add_bos` whether this model wants it; `eos_ids`
    are all ids that end a turn: those that the file names (eos, eot, eom) and the CONTROL tokens of `END_OF_TURN`.
    `size` counts the tokens, `n_control` those of them that are CONTROL tokens. `channels` is how this model marks its
    reasoning, if it does, and `calls` how it calls tools.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        codec: Codec,
        *,
        bos: int | None,
        add_bos: bool,
        ends: Iterable[int],
        swallow_blanks: bool = False,
        channels: ChannelForm | None = None,
        calls: ToolForm | None = None,
    ) -> None:
        """`swallow_blanks`: blanks and line ends after a CONTROL token are no text, as Phi 3 has it."""
        self.channels = channels
        self.calls = calls
        self._tokens = vocabulary.tokens
        self._types = vocabulary.types
        self._codec = codec
        self.bos = bos
        self.add_bos = add_bos
        self.size = len(vocabulary.tokens)
        control = vocabulary.of_type(TokenType.CONTROL)
        never_text = control | vocabulary.of_type(TokenType.UNKNOWN)
        user_defined = vocabulary.of_type(TokenType.USER_DEFINED)
        self.n_control = len(control)
        self.eos_ids = frozenset({*ends, *_ends_of_turn(control)})
        swallowing = (token_id for text, token_id in control.items() if text not in KEEPS_BLANKS)
        self._swallowing = frozenset(swallowing if swallow_blanks else ())
        self._never_text_ids, self._user_defined_ids = never_text, user_defined
        self._never_text = SpecialTokens(never_text)
        self._user_defined = SpecialTokens(user_defined)
        self._all_special = SpecialTokens(never_text | user_defined)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> Tokenizer:
        """Raises ModelFileError on a missing or contradictory entry, UnsupportedModelError on an unknown kind."""
        model = vocab.name(metadata, "model")
        if model not in _MODELS:
            raise UnsupportedModelError(
                f"The model file's tokenizer is of the kind {reprlib.repr(model)}, which is not known here. "
                f"Known are: {', '.join(_MODELS)}."
            )
        vocabulary = Vocabulary.from_metadata(metadata)
        codec: Codec
        if model == "gpt2":
            pre = pre_tokenizer(vocab.name(metadata, "pre", "default"))
            codec, wants_bos = ByteLevel(vocabulary, pre), pre.add_bos
        else:
            prefix, split = _blanks(metadata, model)
            # A GGUF file of Llama's kind has scores; what was a tokenizer.json has the merges of that.
            by_score = model == "llama" and (vocabulary.scores is not None or vocabulary.merges is None)
            codec = SentencePiece(vocabulary, prefix=prefix, by_score=by_score, split=split)
            wants_bos = True
        give_back()
        size = len(vocabulary.tokens)
        bos = vocab.token_id(metadata, "bos_token_id", size)
        if bos is None and model == "llama":
            bos = vocabulary.ids.get("<s>")
        wants_bos = wants_bos and bos is not None
        add_bos = vocab.flag(metadata, "add_bos_token", wants_bos)
        if model == "gemma4":
            add_bos = wants_bos  # llama.cpp overrules files that say otherwise (its pull request 21500)
        if add_bos and bos is None:
            raise ModelFileError(
                "The model file asks for a token that begins every text, but its vocabulary names none."
            )
        template = str(metadata.get(CHAT_TEMPLATE, ""))
        ends = (vocab.token_id(metadata, f"{end}_token_id", size) for end in ("eos", "eot", "eom"))
        return cls(
            vocabulary,
            codec,
            bos=bos,
            add_bos=add_bos,
            ends=(end for end in ends if end is not None),
            swallow_blanks=model == "llama" and metadata.get("general.architecture") == "phi3",
            channels=channel_form(template, vocabulary.ids),
            calls=tool_form(template, vocabulary.ids),
        )

    def encode(self, text: str, *, parse_special: bool, add_bos: bool) -> list[int]:
        """The ids of `text`. CONTROL tokens are recognised in it only with `parse_special`, user-defined ones always.

        `add_bos` puts `bos` in front, unless there is none or the text itself begins with it.
        """
        return self._encode(text, self._all_special if parse_special else self._user_defined, add_bos)

    def encode_chat(
        self,
        template: ChatTemplate,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Tool] = (),
        thinking: bool | None = None,
        effort: Effort | None = None,
        pictures: PictureForm | None = None,
    ) -> list[int]:
        """The ids of a conversation in the model's own form, with `bos` where this model wants it.

        What the messages and tools say stays text: a CONTROL token that is written in them is encoded as the characters
        that it consists of. Where nothing of the kind occurs, the ids are those of the rendered template, with
        `PICTURE` for each of the messages' pictures. Raises what `ChatTemplate.render` raises.
        """
        said = [template.source, *texts(messages, tools)]
        mark = _unused_character(*said)
        never_text, special = self._never_text, self._all_special
        if pictures is not None:
            place = _unused_character(*said, mark)
            # Only the template may write the marker, even where the vocabulary takes it for text.
            never_text = SpecialTokens({**self._never_text_ids, pictures.marker: PICTURE})
            special = SpecialTokens({**self._never_text_ids, **self._user_defined_ids, place: PICTURE})
        text = template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            thinking=thinking,
            effort=effort,
            guard=partial(never_text.guard, mark=mark),
        )
        if pictures is not None:
            text = text.replace(pictures.marker, f"{pictures.before}{place}{pictures.after}")
        return self._encode(text, special, self.add_bos, mark)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD. `skip_special` leaves CONTROL and UNKNOWN out."""
        left_out = SPECIAL if skip_special else ()
        pieces = []
        for token_id in ids:
            self._check(token_id)
            kind = self._types[token_id]
            if kind not in left_out:
                pieces.append(self._codec.token_bytes(self._tokens[token_id], kind))
        data = b"".join(pieces)
        return (data.removeprefix(b" ") if self.space_prefix else data).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, of which a character may need several. Raises SettingsError."""
        self._check(token_id)
        return self._codec.token_bytes(self._tokens[token_id], self._types[token_id])

    def token_text(self, token_id: int) -> str:
        """A token as the vocabulary writes it, such as `<|im_end|>`. Raises SettingsError."""
        self._check(token_id)
        return self._tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether a token is no part of a reply's text: CONTROL or UNKNOWN. Raises SettingsError."""
        self._check(token_id)
        return self._types[token_id] in SPECIAL

    @property
    def space_prefix(self) -> bool:
        """Whether a text is encoded with a blank before it, which decoding takes off."""
        return self._codec.space_prefix

    def _encode(self, text: str, special: SpecialTokens, add_bos: bool, mark: str = "") -> list[int]:
        ids: list[int] = []
        before: int | None = None
        for piece in special.split(_without_lone_surrogates(text), mark):
            if isinstance(piece, int):
                ids.append(piece)
                before = piece
            elif piece := piece.lstrip() if before in self._swallowing else piece:
                ids += self._codec.encode(piece, first=before is None)
        if add_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        return ids

    def _check(self, token_id: int) -> None:
        if not 0 <= token_id < self.size:
            raise SettingsError(f"There is no token {token_id}: the vocabulary has the ids from 0 to {self.size - 1}.")


def _blanks(metadata: Mapping[str, object], model: str) -> tuple[Prefix, bool]:
    """What is done about blanks before a text, and whether merges stop at one."""
    prefix = metadata.get(PREPEND_SCHEME)
    if prefix in ("never", "always", "first"):
        return prefix, metadata.get(SPLIT) is True
    return "each" if vocab.flag(metadata, "add_space_prefix", model == "llama") else "never", False


def _ends_of_turn(control: Mapping[str, int]) -> set[int]:
    ends = END_OF_TURN & control.keys()
    # In these two vocabularies <|end|> closes a part of a turn, such as the reasoning, and others close the turn.
    if {"<|return|>", "<|call|>"} <= ends or {"<|calls|>", "<|flush|>"} <= ends:
        ends -= {"<|end|>"}
    return {control[text] for text in ends}


def _unused_character(*texts: str) -> str:
    """A character that is in none of the texts: of those that Unicode assigns to nobody, from the last on."""
    used = set().union(*texts)
    return next(char for char in map(chr, range(0x10FFFF, 0, -1)) if char not in used)


def _without_lone_surrogates(text: str) -> str:
    """Half a surrogate pair, which is no character and has no UTF-8 form, becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
