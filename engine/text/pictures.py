"""How a prompt's text makes room for a picture, by the projector that turns pictures into rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

PICTURE: Final = -1
"""Stands for a picture among the ids of a prompt."""


@dataclass(frozen=True)
class PictureForm:
    """A template writes `marker` for a picture. What the model reads there is `before`, the picture's rows, `after`.

    The text models that were trained with the projector are of one of `architectures`.
    """

    architectures: tuple[str, ...]
    marker: str
    before: str = ""
    after: str = ""


FORMS: Final[Mapping[str, PictureForm]] = MappingProxyType(
    {
        "gemma3": PictureForm(("gemma3",), "<start_of_image>", "\n\n<start_of_image>", "<end_of_image>\n\n"),
        "gemma4v": PictureForm(("gemma4",), "<|image|>", "<|image>", "<image|>"),
        "idefics3": PictureForm(
            ("llama",), "<image>", "<fake_token_around_image><global-img>", "<fake_token_around_image>"
        ),
        "qwen3vl_merger": PictureForm(("qwen35", "qwen35moe", "qwen3vl", "qwen3vlmoe"), "<|image_pad|>"),
    }
)
"""By the projector's name. Source: the processors of Transformers (`Gemma3Processor`, `Gemma4Processor`,
`Idefics3Processor` for pictures that are not cut into tiles, `Qwen3VLProcessor`)."""
