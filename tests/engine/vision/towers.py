"""Tiny vision towers with random weights: made by Transformers, written as mmproj GGUF, loaded by the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from torch import nn
from transformers import (
    Gemma3Config,
    Gemma3TextConfig,
    Gemma4TextConfig,
    Gemma4VisionConfig,
    Gemma4VisionModel,
    Idefics3Config,
    Qwen3VLVisionModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3MultiModalProjector
from transformers.models.gemma4.modeling_gemma4 import Gemma4MultimodalEmbedder
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.modeling_idefics3 import Idefics3Connector, Idefics3VisionTransformer
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig

from engine.kernels.ops import Ops
from engine.memory.meter import Meter
from engine.vision.patches import Patches, Picture
from engine.vision.projector import load_tower, read_projector
from engine.vision.tower import Tower

TEXT_SIZE = 40
HALF = (0.5, 0.5, 0.5)
Truth = Callable[[Picture], np.ndarray]


@dataclass(frozen=True)
class Family:
    """`keys` are the metadata that the converter writes, `tensors` give each parameter its name and form in a file, and
    `back` takes a file's form to that of Transformers."""

    modules: nn.ModuleDict
    patches: Patches
    keys: dict[str, Any]
    name: Callable[[str], list[str]]
    to_file: Callable[[str, np.ndarray], list[np.ndarray]]
    from_file: Callable[[str, list[np.ndarray]], np.ndarray]
    truth: Truth


def fill(modules: nn.Module) -> None:
    """Weights large enough for attention to pick out single patches, always the same."""
    draws = torch.Generator().manual_seed(31)
    with torch.no_grad():
        for name, values in (*modules.named_parameters(), *modules.named_buffers()):
            if not values.is_floating_point() or "inv_freq" in name:
                continue
            values.normal_(generator=draws)
            if name.endswith(("_min", "_max")):
                values.abs_().add_(0.5).mul_(-1 if name.endswith("min") else 1)
            elif values.ndim >= 2 and "position" not in name and "pos_embed" not in name:
                columns = values.shape[0] if "mm_input_projection" in name else values[0].numel()
                values *= 1.5 / columns**0.5
            elif "norm" in name and name.endswith("weight"):
                values.mul_(0.2).add_(0 if "soft_emb" in name else 1)
            else:
                values *= 0.3


def _keys(config: Any, projector: str, *, image_size: int, heads: int, layers: int, eps: float) -> dict[str, Any]:
    """`MmprojModel.set_gguf_parameters`."""
    return {
        "clip.has_vision_encoder": True,
        "clip.projector_type": projector,
        "clip.vision.projection_dim": TEXT_SIZE,
        "clip.vision.image_size": image_size,
        "clip.vision.patch_size": config.patch_size,
        "clip.vision.embedding_length": config.hidden_size,
        "clip.vision.feed_forward_length": config.intermediate_size,
        "clip.vision.block_count": layers,
        "clip.vision.attention.head_count": heads,
        "clip.vision.attention.layer_norm_epsilon": eps,
        "clip.vision.image_mean": list(HALF),
        "clip.vision.image_std": list(HALF),
    }


def _mapped(rename: Callable[[str], str], layers: int) -> Callable[[str], list[str]]:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    endings = (".weight", ".bias", ".input_min", ".input_max", ".output_min", ".output_max")

    def name(parameter: str) -> list[str]:
        found = names.get_name(rename(parameter), try_suffixes=endings)
        assert found is not None, parameter
        return [found]

    return name


def _as_it_is(name: str, values: np.ndarray) -> list[np.ndarray]:
    return [values]


def _as_it_was(name: str, parts: list[np.ndarray]) -> np.ndarray:
    return parts[0]


def qwen(kind: str = "qwen3_vl", **changes: Any) -> Family:
    """`Qwen3VLVisionModel` of conversion/qwen3vl.py."""
    make_config, make_model = {
        "qwen3_vl": (Qwen3VLVisionConfig, Qwen3VLVisionModel),
        "qwen3_5": (Qwen3_5VisionConfig, Qwen3_5VisionModel),
    }[kind]
    shape = {"depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "patch_size": 4}
    shape |= {"out_hidden_size": TEXT_SIZE, "num_position_embeddings": 25}
    if kind == "qwen3_vl":
        shape["deepstack_visual_indexes"] = [0, 2]
    config = make_config(**(shape | changes))
    model = make_model(config).eval()
    levels = list(getattr(config, "deepstack_visual_indexes", []))
    side = round(config.num_position_embeddings**0.5)
    keys = _keys(
        config,
        "qwen3vl_merger",
        image_size=side * config.patch_size,
        heads=config.num_heads,
        layers=config.depth,
        eps=1e-6,
    ) | {
        "clip.use_gelu": True,
        "clip.vision.spatial_merge_size": config.spatial_merge_size,
        "clip.vision.is_deepstack_layers": [layer in levels for layer in range(config.depth)],
    }
    mapped = _mapped(lambda name: name.replace("model.", "visual.", 1), config.depth)

    def name(parameter: str) -> list[str]:
        _, module, *rest = parameter.split(".")
        if module == "deepstack_merger_list":
            part = rest[1].removeprefix("linear_")
            return [f"v.deepstack.{levels[int(rest[0])]}.{part}.{rest[2]}"]
        if module == "merger":
            part = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}[rest[0]]
            return [f"{part}.{rest[1]}"]
        if parameter == "model.patch_embed.proj.weight":
            return ["v.patch_embd.weight", "v.patch_embd.weight.1"]
        return ["v.patch_embd.bias"] if module == "patch_embed" else mapped(parameter)

    def truth(picture: Picture) -> np.ndarray:
        n, rows, columns = len(picture.pixels), *picture.grid
        pixels = picture.pixels.reshape(n, 3, -1, config.patch_size**2)
        pixels = np.repeat(pixels[:, :, :1], 2, axis=2).reshape(n, -1)
        out = model(torch.tensor(pixels), grid_thw=torch.tensor([[1, rows, columns]]))
        parts = [out.pooler_output, *getattr(out, "deepstack_features", [])]
        return torch.cat(parts, dim=1).numpy()

    def to_file(name: str, values: np.ndarray) -> list[np.ndarray]:
        return [values[:, :, 0], values[:, :, 1]] if values.ndim == 5 else [values]

    def from_file(name: str, parts: list[np.ndarray]) -> np.ndarray:
        return np.stack(parts, axis=2) if len(parts) == 2 else parts[0]

    patches = Patches(config.patch_size, config.spatial_merge_size, HALF, HALF, blockwise=True)
    return Family(nn.ModuleDict({"model": model}), patches, keys, name, to_file, from_file, truth)


def gemma3(*, side: int = 8, kernel: int = 4, **changes: Any) -> Family:
    """`Gemma3VisionModel` of conversion/gemma.py."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 4,
    }
    shape |= {"image_size": side * 4, "vision_use_head": False, "hidden_act": "gelu_pytorch_tanh"}
    config = SiglipVisionConfig(**(shape | changes))
    whole = Gemma3Config(
        text_config=Gemma3TextConfig(hidden_size=TEXT_SIZE).to_dict(),
        vision_config=config.to_dict(),
        mm_tokens_per_image=(side // kernel) ** 2,
    )
    model, projector = SiglipVisionModel(config).eval(), Gemma3MultiModalProjector(whole).eval()
    layers = config.num_hidden_layers
    keys = _keys(
        config, "gemma3", image_size=config.image_size, heads=config.num_attention_heads, layers=layers, eps=1e-6
    ) | {"clip.use_gelu": True}
    if kernel != 4:
        keys["clip.vision.projector.scale_factor"] = kernel

    def rename(name: str) -> str:
        name = name.replace("mm_input_projection_weight", "mm_input_projection.weight")
        name = name.replace("model.vision_model.", "model.")
        return name.replace("model.", "vision_tower.vision_model.", 1)

    def truth(picture: Picture) -> np.ndarray:
        n = side * config.patch_size
        tiled = picture.pixels.reshape(side, side, 3, config.patch_size, config.patch_size)
        pixels = torch.tensor(tiled.transpose(2, 0, 3, 1, 4).reshape(1, 3, n, n))
        return projector(model(pixels).last_hidden_state)[0].numpy()

    def to_file(name: str, values: np.ndarray) -> list[np.ndarray]:
        return [values + np.float32(1) if "soft_emb_norm" in name else values]

    def from_file(name: str, parts: list[np.ndarray]) -> np.ndarray:
        return parts[0] - np.float32(1) if "soft_emb_norm" in name else parts[0]

    modules = nn.ModuleDict({"model": model, "multi_modal_projector": projector})
    patches = Patches(config.patch_size, kernel, HALF, HALF)
    return Family(modules, patches, keys, _mapped(rename, layers), to_file, from_file, truth)


def idefics3(*, side: int = 8, scale_factor: int = 2, **changes: Any) -> Family:
    """`SmolVLMModel` of conversion/smolvlm.py."""
    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": 4,
    }
    config = Idefics3VisionConfig(**(shape | {"image_size": side * 4} | changes))
    whole = Idefics3Config(
        vision_config=config.to_dict(),
        text_config={"model_type": "llama", "hidden_size": TEXT_SIZE, "num_attention_heads": 2},
        scale_factor=scale_factor,
    )
    model, connector = Idefics3VisionTransformer(config).eval(), Idefics3Connector(whole).eval()
    layers = config.num_hidden_layers
    keys = _keys(
        config, "idefics3", image_size=config.image_size, heads=config.num_attention_heads, layers=layers, eps=1e-6
    ) | {"clip.use_gelu": True, "clip.vision.projector.scale_factor": scale_factor}

    def rename(name: str) -> str:
        return name.replace("model.", "model.vision_model.", 1) if name.startswith("model.") else f"model.{name}"

    def truth(picture: Picture) -> np.ndarray:
        p, blocks = config.patch_size, side // scale_factor
        tiled = picture.pixels.reshape(blocks, blocks, scale_factor, scale_factor, 3, p, p)
        pixels = torch.tensor(tiled.transpose(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, side * p, side * p))
        return connector(model(pixels).last_hidden_state)[0].numpy()

    modules = nn.ModuleDict({"model": model, "connector": connector})
    patches = Patches(config.patch_size, scale_factor, HALF, HALF, blockwise=True)
    return Family(modules, patches, keys, _mapped(rename, layers), _as_it_is, _as_it_was, truth)


def gemma4(**changes: Any) -> Family:
    """`Gemma4VisionAudioModel` of conversion/gemma.py. It names the projector for pictures alone, and no activation."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "position_embedding_size": 24}
    config = Gemma4VisionConfig(**(shape | changes))
    model = Gemma4VisionModel(config).eval()
    embedder = Gemma4MultimodalEmbedder(config, Gemma4TextConfig(hidden_size=TEXT_SIZE)).eval()
    layers = config.num_hidden_layers
    keys = _keys(config, "gemma4v", image_size=224, heads=config.num_attention_heads, layers=layers, eps=1e-6)
    keys["clip.vision.projector_type"] = keys.pop("clip.projector_type")
    keys |= {"clip.vision.image_mean": [0.0] * 3, "clip.vision.image_std": [1.0] * 3}
    if config.pooling_kernel_size != 3:  # read by llama.cpp, though not written by its converter
        keys["clip.vision.projector.scale_factor"] = config.pooling_kernel_size

    def rename(name: str) -> str:
        name = name.replace("model.encoder.", "vision_model.model.").replace(".linear.weight", ".weight")
        name = name.replace("embed_vision.", "model.embed_vision.")
        if name.startswith("model.") and "embed_vision" not in name:
            name = name.replace("model.", "model.vision_tower.", 1)
        return f"{name}.weight" if name.endswith("position_embedding_table") else name

    def to_file(name: str, values: np.ndarray) -> list[np.ndarray]:
        if name.endswith("patch_embedder.input_proj.weight"):
            p = config.patch_size
            return [np.ascontiguousarray(values.reshape(len(values), p, p, 3).transpose(0, 3, 1, 2))]
        return [values.reshape(1) if values.ndim == 0 else values]

    def from_file(name: str, parts: list[np.ndarray]) -> np.ndarray:
        values = parts[0]
        return values.transpose(0, 2, 3, 1).reshape(len(values), -1) if "input_proj" in name else values

    def truth(picture: Picture) -> np.ndarray:
        n, (rows, columns) = len(picture.pixels), picture.grid
        pixels = picture.pixels.reshape(n, 3, -1).transpose(0, 2, 1).reshape(1, n, -1)
        x, y = torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")
        positions = torch.stack([x, y], dim=-1).reshape(1, n, 2)
        # The tower itself begins with 2x - 1.
        features = model(torch.tensor((pixels + 1) / 2), positions).last_hidden_state
        return embedder(features).numpy()

    modules = nn.ModuleDict({"model": model, "embed_vision": embedder})
    patches = Patches(config.patch_size, config.pooling_kernel_size, HALF, HALF)
    return Family(modules, patches, keys, _mapped(rename, layers), to_file, from_file, truth)


def write(
    path: Path, family: Family, encoding: str = "F32", more: dict[str, np.ndarray] | None = None, **changes: Any
) -> Path:
    """Write the tower with its matrices in `encoding`, and give it the rounded weights that the file now holds.

    Tables of positions stay F32 and so do convolutions, unless all is F16 (`tensor_force_quant`); rows of no whole
    blocks are F16 in place of Q8_0. `changes` replace keys; `...` leaves one out. `more` are further tensors.
    """
    writer = GGUFWriter(path, "clip")
    for key, value in (family.keys | changes).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif value is not ...:
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add[type(value)](key, value)
    with torch.no_grad():
        for name, values in (*family.modules.named_parameters(), *family.modules.named_buffers()):
            if not values.is_floating_point() or "inv_freq" in name:
                continue
            rounded = []
            for file_name, part in zip(family.name(name), family.to_file(name, values.numpy()), strict=True):
                kind = GGMLQuantizationType[_encoding(file_name, part, encoding)]
                packed = gguf.quantize(np.ascontiguousarray(part), kind)
                writer.add_tensor(file_name, packed, raw_dtype=kind)
                rounded.append(gguf.dequantize(packed, kind).astype(np.float32).reshape(part.shape))
            values.copy_(torch.tensor(family.from_file(name, rounded)).reshape(values.shape))
    for name, part in (more or {}).items():
        writer.add_tensor(name, part)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _encoding(name: str, values: np.ndarray, encoding: str) -> str:
    if values.ndim == 1 or "position_embd" in name:
        return "F32"
    if "patch_embd" in name:
        return "F16" if encoding == "F16" else "F32"
    return "F16" if encoding == "Q8_0" and values.shape[-1] % 32 else encoding


def load(path: Path, ops: Ops) -> Tower:
    return load_tower(read_projector(path), ops, Meter())


def picture(family: Family, grid: tuple[int, int]) -> Picture:
    """Random colours, cut into so many patches."""
    side = family.patches.side
    colours = np.random.default_rng(8).integers(0, 256, (grid[0] * side, grid[1] * side, 3), np.uint8)
    return family.patches.cut(colours)
