"""A scale of a whole matrix, or of each of a mixture's, which a file may have beside it: in BitNet, and with NVFP4."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from bench.accuracy import teacher_forced
from engine import models
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats.gguf import read
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.blocks import expert_scales
from tests.engine.devices import DEVICES
from tests.engine.models.families import FAMILIES
from tests.engine.models.judge import TOKENS
from tests.tiny import load_model, tiny, write_gguf

MATRICES = re.compile(r"blk\.\d+\.(?!ssm_conv1d|ffn_gate_inp_shexp).*\.weight|output\.weight")


def rewrite(source: Path, target: Path, scale: float) -> None:
    """The file with the weights of its layers and of its head halved, `scale` beside them, and what converters write
    for devices that multiply in four bits. Experts are divided by other powers of two, and have scales to match."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if tensor.name.endswith("_exps.weight") and "gate_up" not in tensor.name:
            powers = 2.0 ** (np.arange(len(data)) % 3)
            for name in ("scale", "input_scale"):
                writer.add_tensor(tensor.name.replace("weight", name), (scale * powers).astype(np.float32))
            data /= 2 * powers[:, np.newaxis, np.newaxis]
        elif data.ndim == 2 and MATRICES.fullmatch(tensor.name):
            for name in ("scale", "input_scale"):
                writer.add_tensor(tensor.name.replace("weight", name), np.array([scale], np.float32))
            if tensor.tensor_type == GGMLQuantizationType.TQ2_0:
                blocks = data.reshape(-1, 66)
                blocks[:, 64:] = (blocks[:, 64:].copy().view(np.float16) / 2).view(np.uint8)
            else:
                data /= 2
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(path: Path, device: str) -> np.ndarray:
    with closing(DEVICES[device]()) as ops:
        return teacher_forced(load_model(path, ops), ops, TOKENS, kv="f32")


CASES = [*((name, "F32") for name in FAMILIES if name != "gemma4 experts"), ("bitnet", "TQ2_0")]
"""Gemma 4's experts have scales of their own, which test_gemma4.py looks at."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "encoding"), CASES)
def test_a_scale_multiplies_the_products_of_its_matrix(name: str, encoding: str, device: str, tmp_path: Path) -> None:
    whole, twice, thrice = (tmp_path / f"{part}.gguf" for part in ("whole", "twice", "thrice"))
    FAMILIES[name].write(whole, FAMILIES[name].make(), encoding)
    rewrite(whole, twice, 2.0)
    rewrite(whole, thrice, 3.0)
    truth = logits(whole, device)
    # Twos are exact whatever they multiply.
    assert np.array_equal(logits(twice, device).view(np.uint32), truth.view(np.uint32))
    assert np.abs(logits(thrice, device) - truth).max() > 1e-2 * np.abs(truth).max()


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_a_scale_that_leaves_nothing_of_the_products_is_refused(scale: float, tmp_path: Path) -> None:
    write_gguf(tmp_path / "whole.gguf", tiny("llama"))
    rewrite(tmp_path / "whole.gguf", tmp_path / "scaled.gguf", scale)
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_q\.scale is .*; the file is damaged"):
        load_model(tmp_path / "scaled.gguf", DEVICES["plain"]())


@pytest.mark.parametrize("scale", [0.0, np.nan, -np.inf])
def test_a_scale_that_leaves_nothing_of_one_expert_is_refused(scale: float) -> None:
    class File:
        def has(self, name: str) -> bool:
            return True

        def host(self, name: str, *shape: int) -> np.ndarray:
            return np.array([2, 0.5, scale, 1], np.float32)

    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_up_exps\.scale is .*; the file is damaged"):
        expert_scales(File(), "blk.1.ffn_up_exps.scale", 4)


def unread(family: str, tensor: str, tmp_path: Path, **options: object) -> None:
    """A model with a scale beside this tensor is refused, and by its name."""
    FAMILIES[family].writer(tmp_path / "whole.gguf", model=FAMILIES[family].make(), **options)
    index = read(tmp_path / "whole.gguf")
    info = next(iter(index.tensors.values()))
    index = replace(index, tensors=dict(index.tensors) | {tensor: info})
    store = WeightStore(index, DEVICES["plain"](), Meter())
    with closing(store), pytest.raises(UnsupportedModelError, match=tensor):
        models.build(index.metadata, store, context=8)


@pytest.mark.parametrize("tensor", ["blk.0.attn_k_b.scale", "blk.1.attn_v_b.scale"])
def test_scales_of_heads_are_refused(tensor: str, tmp_path: Path) -> None:
    unread("deepseek v3", tensor, tmp_path)


def test_scales_of_fused_experts_are_refused(tmp_path: Path) -> None:
    unread("qwen3moe", "blk.0.ffn_gate_up_exps.scale", tmp_path, fused=True)


def test_scales_of_activations_may_stay_unread(tmp_path: Path) -> None:
    write_gguf(tmp_path / "whole.gguf", tiny("llama"))
    rewrite(tmp_path / "whole.gguf", tmp_path / "scaled.gguf", 2.0)
    index = read(tmp_path / "scaled.gguf")
    with closing(WeightStore(index, DEVICES["plain"](), Meter())) as store:
        with pytest.raises(ModelFileError, match=r"attn_k\.scale|attn_k\.weight"):
            store.require_all_used()
        for name, info in index.tensors.items():
            if name.endswith("weight") and len(info.shape) == 2:
                store.matrix(name, *info.shape)
            elif not name.endswith("input_scale"):
                store.vector(name, *info.shape)
        store.require_all_used()
