"""A tiny Qwen3-VL with random weights in two GGUF files, one of text and one its tower, with tokenizer and template."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFWriter, TokenType
from transformers import PreTrainedModel

from tests.engine.vision.towers import TEXT_SIZE, Family, fill, qwen, write
from tests.tiny import tiny, write_gguf
from tests.tiny_chat import byte_tokens

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
START, END, SEE, SEEN, PAD = range(257, 262)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PIXELS = 256, 2048
"""The fewest and the most of a picture."""


def tokenizer(writer: GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*byte_tokens(), "ZZ", *SPECIAL])
    writer.add_token_types([TokenType.NORMAL] * 257 + [TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges(["Z Z"])
    writer.add_eos_token_id(END)
    writer.add_chat_template(TEMPLATE)


def tower_family(pixels: tuple[int, int] = PIXELS) -> Family:
    family = qwen(deepstack_visual_indexes=[0, 2])
    family.keys.update({"clip.vision.image_min_pixels": pixels[0], "clip.vision.image_max_pixels": pixels[1]})
    fill(family.modules)
    return family


def write_seeing(folder: Path, *, pixels: tuple[int, int] = PIXELS, context: int = 256) -> PreTrainedModel:
    """`tiny.gguf` and `mmproj-tiny.gguf`: → what they were made of."""
    family = tower_family(pixels)
    made = tiny("qwen3vl", vocab_size=262, hidden_size=TEXT_SIZE, max_position_embeddings=context)
    made.config.image_token_id = made.model.config.image_token_id = PAD
    write(folder / "mmproj-tiny.gguf", family)
    made.model.visual = family.modules["model"]
    write_gguf(folder / "tiny.gguf", made, tokenizer=tokenizer)
    return made
