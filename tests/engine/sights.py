"""Tiny models that see, whole: as Transformers has them with their processors, and as GGUF files for the engine.

Token i < 256 is byte i. The file of a tower lies beside that of its model.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter, TokenType
from PIL import Image as PillowImage
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4Processor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine import Image, Message
from engine.types import PLACE
from tests.engine.formats.checkpoints import change
from tests.engine.models.mixtures import MIXTURES, tiny_mixture, write_mixture
from tests.engine.vision import towers
from tests.engine.vision.towers import HALF, TEXT_SIZE, Family, fill, write
from tests.tiny import tiny, write_gguf
from tests.tiny_chat import byte_tokens

POSITIONS = 512
PIXELS = 256, 2048
QWEN_PIXELS = {"clip.vision.image_min_pixels": PIXELS[0], "clip.vision.image_max_pixels": PIXELS[1]}
QWEN_MARKS = ("<|im_end|>", "<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
SIZES = {"hidden_size": TEXT_SIZE, "max_position_embeddings": POSITIONS}

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{% for message in messages %}<start_of_turn>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content | trim }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text | trim }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
GEMMA4 = GEMMA.replace("<start_of_turn>", "<|turn>").replace("<end_of_turn>", "<turn|>")
GEMMA4 = GEMMA4.replace("<start_of_image>", "\n\n<|image|>\n\n")
SMOLVLM = (
    "{% for message in messages %}<|im_start|>{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>Assistant:' }}{% endif %}"
)
"""Of the published one's form: it reads no content that is mere text."""


class _PicturesAlone:
    """A processor without its parts for sound and films, some of which need libraries that pictures do not."""

    def check_argument_for_proper_class(self, name: str, argument: object) -> None:
        pass


class _Gemma4Processor(_PicturesAlone, Gemma4Processor):
    pass


class _QwenProcessor(_PicturesAlone, Qwen3VLProcessor):
    pass


Turn = tuple[str, tuple[str | Image, ...]]
"""A role, and texts and pictures in their order."""


def png(width: int, height: int, seed: int = 0) -> Image:
    """Random colours."""
    colours = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    file = io.BytesIO()
    PillowImage.fromarray(colours).save(file, "PNG")
    return Image(file.getvalue(), f"{width}x{height}.png")


def messages(turns: Sequence[Turn]) -> list[Message]:
    """The conversation as the engine takes it."""
    made = []
    for role, parts in turns:
        text = "".join(PLACE if isinstance(part, Image) else part for part in parts)
        made.append(Message(role, text, images=tuple(part for part in parts if isinstance(part, Image))))
    return made


@dataclass(frozen=True)
class Sight:
    """`marks` are the vocabulary's own tokens, the first of which ends a turn, and `row` stands for a picture's row."""

    model: PreTrainedModel
    processor: ProcessorMixin
    tokenizer: Callable[[GGUFWriter], None]
    row: int

    def inputs(self, turns: Sequence[Turn]) -> dict[str, torch.Tensor]:
        """What Transformers' own processor makes of the conversation, up to where the reply begins."""
        told = [
            {
                "role": role,
                "content": [
                    {"type": "image", "image": PillowImage.open(io.BytesIO(part.data))}
                    if isinstance(part, Image)
                    else {"type": "text", "text": part}
                    for part in parts
                ],
            }
            for role, parts in turns
        ]
        made = self.processor.apply_chat_template(
            told, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        return dict(made)

    def logits(self, inputs: dict[str, torch.Tensor]) -> np.ndarray:
        """Of every row."""
        with torch.no_grad():
            return self.model(**inputs).logits[0].numpy()

    def reply(self, turns: Sequence[Turn], tokens: int) -> list[int]:
        """The prompt's rows and the greedy reply after it."""
        inputs = self.inputs(turns)
        for _ in range(tokens):
            chosen = int(self.logits(inputs)[-1].argmax())
            inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([[chosen]])], dim=1)
            for key in ("attention_mask", "token_type_ids", "mm_token_type_ids"):
                if key in inputs:
                    fresh = torch.tensor([[int(key == "attention_mask")]])
                    inputs[key] = torch.cat([inputs[key], fresh], dim=1)
        return inputs["input_ids"][0].tolist()


def _tokenizers(
    marks: Sequence[str], template: str, names: dict[str, str]
) -> tuple[PreTrainedTokenizerFast, Callable[[GGUFWriter], None]]:
    """One vocabulary as Transformers has it and as a file has it. The first of `marks` ends a turn."""
    tokens = [*byte_tokens(), "ZZ"]
    core = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, [("Z", "Z")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(marks))
    theirs = PreTrainedTokenizerFast(tokenizer_object=core, extra_special_tokens=names, padding_side="left")
    theirs.pad_token = tokens[0]

    def add(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([*tokens, *marks])
        writer.add_token_types([TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(marks))
        writer.add_token_merges(["Z Z"])
        writer.add_eos_token_id(len(tokens))
        writer.add_chat_template(template)

    return theirs, add


def _together(whole: PreTrainedModel, text: PreTrainedModel, family: Family, places: dict[str, str]) -> PreTrainedModel:
    """The whole model over the text model's weights and the tower's, whose modules go to `places`."""
    fill(family.modules)
    whole.model.language_model = text.model
    whole.lm_head = text.lm_head
    for name, place in places.items():
        setattr(whole.model, place, family.modules[name])
    return whole.eval()


def gemma3(side: int = 16, **text: Any) -> tuple[Sight, Family, nn.Module]:
    """Pictures of (side / 4)² rows each."""
    marks = ("<end_of_turn>", "<start_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>")
    names = {"boi_token": marks[2], "eoi_token": marks[3], "image_token": marks[4]}
    theirs, ours = _tokenizers(marks, GEMMA, names)
    small = {"num_hidden_layers": 6, "intermediate_size": 48}
    model, family = tiny("gemma3", vocab_size=262, **SIZES, **(small | text)), towers.gemma3(side=side)
    config = Gemma3Config(
        text_config=model.config.to_dict(),
        vision_config=family.modules["model"].config.to_dict(),
        mm_tokens_per_image=(side // 4) ** 2,
        boi_token_index=259,
        eoi_token_index=260,
        image_token_index=261,
    )
    places = {"model": "vision_tower", "multi_modal_projector": "multi_modal_projector"}
    whole = _together(Gemma3ForConditionalGeneration(config), model, family, places)
    size = {"height": side * 4, "width": side * 4}
    images = Gemma3ImageProcessorPil(size=size, image_mean=HALF, image_std=HALF, do_pan_and_scan=False)
    processor = Gemma3Processor(images, theirs, chat_template=GEMMA, image_seq_length=(side // 4) ** 2)
    return Sight(whole, processor, ours, 261), family, model


def gemma4(vision: dict[str, Any] | None = None, **text: Any) -> tuple[Sight, Family, nn.Module]:
    """Pictures of up to 70 rows, for which the engine needs a cap of 630 patches."""
    marks = ("<turn|>", "<|turn>", "<|image>", "<image|>", "<|image|>", "<|audio|>")
    names = {"boi_token": marks[2], "eoi_token": marks[3], "image_token": marks[4]}
    names |= dict.fromkeys(("audio_token", "boa_token", "eoa_token"), marks[5])
    theirs, ours = _tokenizers(marks, GEMMA4, names)
    shape = {"vocab_size": 263, "vocab_size_per_layer_input": 263, "pad_token_id": 0} | SIZES
    model, family = tiny("gemma4", **(shape | text)), towers.gemma4(position_embedding_size=64, **(vision or {}))
    config = Gemma4Config(
        text_config=model.config.to_dict(),
        vision_config=family.modules["model"].config.to_dict(),
        audio_config=None,
        boi_token_id=259,
        eoi_token_id=260,
        image_token_id=261,
    )
    places = {"model": "vision_tower", "embed_vision": "embed_vision"}
    whole = _together(Gemma4ForConditionalGeneration(config), model, family, places)
    images = Gemma4ImageProcessorPil(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70)
    processor = _Gemma4Processor(None, images, theirs, None, chat_template=GEMMA4)
    return Sight(whole, processor, ours, 261), family, model


def qwen35(**text: Any) -> tuple[Sight, Family, nn.Module]:
    theirs, ours = _tokenizers(QWEN_MARKS, CHATML, {})
    model, family = tiny("qwen35", vocab_size=262, **SIZES, **text), towers.qwen("qwen3_5")
    family.keys.update(QWEN_PIXELS)
    config = Qwen3_5Config(
        text_config=model.config.to_dict(), vision_config=family.modules["model"].config.to_dict(), image_token_id=261
    )
    whole = _together(Qwen3_5ForConditionalGeneration(config), model, family, {"model": "visual"})
    return Sight(whole, _qwen_processor(theirs), ours, 261), family, model


def qwen3vl(**text: Any) -> tuple[Sight, Family, nn.Module]:
    theirs, ours = _tokenizers(QWEN_MARKS, CHATML, {})
    family = towers.qwen(deepstack_visual_indexes=[0, 2])
    family.keys.update(QWEN_PIXELS)
    made = tiny("qwen3vl", vocab_size=262, **SIZES, **text)
    config = Qwen3VLConfig(
        text_config=made.config.text_config.to_dict(),
        vision_config=family.modules["model"].config.to_dict(),
        image_token_id=261,
        tie_word_embeddings=made.config.text_config.tie_word_embeddings,
    )
    whole = Qwen3VLForConditionalGeneration(config)
    fill(family.modules)
    whole.model.language_model, whole.lm_head = made.model.language_model, made.lm_head
    whole.model.visual = family.modules["model"]
    if config.tie_word_embeddings:
        whole.lm_head.weight = whole.model.language_model.embed_tokens.weight
    return Sight(whole.eval(), _qwen_processor(theirs), ours, 261), family, whole


def qwen3vlmoe() -> tuple[Sight, Family, nn.Module]:
    theirs, ours = _tokenizers(QWEN_MARKS, CHATML, {})
    model = tiny_mixture("qwen3vlmoe", vocab_size=262, **SIZES)
    family = towers.qwen(deepstack_visual_indexes=[0, 2])
    family.keys.update(QWEN_PIXELS)
    fill(family.modules)
    model.model.visual = family.modules["model"]
    model.config.image_token_id = model.model.config.image_token_id = 261
    return Sight(model, _qwen_processor(theirs), ours, 261), family, model


def _qwen_processor(tokenizer: PreTrainedTokenizerFast) -> _QwenProcessor:
    images = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, image_mean=HALF, image_std=HALF, min_pixels=PIXELS[0], max_pixels=PIXELS[1]
    )
    return _QwenProcessor(images, tokenizer, None, chat_template=CHATML)


def idefics3(**text: Any) -> tuple[Sight, Family, nn.Module]:
    """Pictures of 16 rows."""
    marks = ("<end_of_utterance>", "<|im_start|>", "<fake_token_around_image>", "<global-img>", "<image>")
    theirs, ours = _tokenizers(marks, SMOLVLM, {})
    model, family = tiny("llama", vocab_size=262, **SIZES, **text), towers.idefics3()
    config = Idefics3Config(
        text_config=model.config.to_dict() | {"pad_token_id": 0},
        vision_config=family.modules["model"].config.to_dict(),
        image_token_id=261,
        scale_factor=2,
    )
    whole = Idefics3ForConditionalGeneration(config)
    fill(family.modules)
    whole.model.text_model, whole.lm_head = model.model, model.lm_head
    whole.model.vision_model, whole.model.connector = family.modules["model"], family.modules["connector"]
    images = Idefics3ImageProcessorPil(
        max_image_size={"longest_edge": 32},
        do_resize=False,  # a first step, to another size, that the engine leaves out
        do_image_splitting=False,
        image_mean=HALF,
        image_std=HALF,
    )
    processor = Idefics3Processor(images, theirs, image_seq_len=16, chat_template=SMOLVLM)
    return Sight(whole.eval(), processor, ours, 261), family, model


SIGHTS: dict[str, Callable[[], tuple[Sight, Family, nn.Module]]] = {
    "gemma3": lambda: gemma3(sliding_window=30),
    "gemma3, pictures longer than the window": gemma3,
    "gemma4, layers with inputs": gemma4,
    "gemma4, without": lambda: gemma4(hidden_size_per_layer_input=0, use_bidirectional_attention="vision"),
    "idefics3": idefics3,
    "qwen35": qwen35,
    "qwen3vl": qwen3vl,
    "qwen3vlmoe": qwen3vlmoe,
}


def publish(folder: Path, name: str) -> Sight:
    """Write tiny.gguf and mmproj-tiny.gguf into the folder."""
    sight, family, text = SIGHTS[name]()
    write(folder / "mmproj-tiny.gguf", family)
    if name in MIXTURES:
        write_mixture(folder / "tiny.gguf", name, text, tokenizer=sight.tokenizer)
    else:
        write_gguf(folder / "tiny.gguf", text, tokenizer=sight.tokenizer)
    return sight


CHECKPOINTS: dict[str, Callable[[], tuple[Sight, Family, nn.Module]]] = {
    "gemma3": SIGHTS["gemma3"],
    "gemma4": gemma4,
    "gemma4, clipped": lambda: gemma4(
        {"use_clipped_linears": True, "standardize": True},
        hidden_size_per_layer_input=0,
        use_bidirectional_attention="vision",
    ),
    "qwen35": qwen35,
    "qwen3vl": qwen3vl,
    "qwen3vl, tied": lambda: qwen3vl(tie_word_embeddings=True),
}


def publish_checkpoint(folder: Path, name: str, *, dtype: torch.dtype = torch.float32) -> Sight:
    """Write the whole model into the folder, as Transformers does, and give it the rounded weights."""
    sight, _, _ = CHECKPOINTS[name]()
    tokenizer = sight.processor.tokenizer
    for settings in (sight.model.config, sight.model.config.get_text_config(), sight.model.generation_config):
        settings.eos_token_id = 257
    copy.deepcopy(sight.model).to(dtype).save_pretrained(folder)
    with torch.no_grad():
        for values in (*sight.model.parameters(), *sight.model.buffers()):
            values.copy_(values.to(dtype))
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    change(
        folder / "tokenizer_config.json",
        eos_token=tokenizer.convert_ids_to_tokens(257),
        chat_template=sight.processor.chat_template,
    )
    means = ([0.0] * 3, [1.0] * 3) if name.startswith("gemma4") else (list(HALF), list(HALF))
    processor: dict[str, object] = dict(zip(("image_mean", "image_std"), means, strict=True))
    if name.startswith("qwen"):
        processor["size"] = {"shortest_edge": PIXELS[0], "longest_edge": PIXELS[1]}
    change(folder / "preprocessor_config.json", **processor)
    return sight
