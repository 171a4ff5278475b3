"""A scale of a whole matrix, which a file may have beside it: in BitNet, and with NVFP4."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from bench.accuracy import teacher_forced
from bench.oracle import CLASSES
from engine.errors import ModelFileError
from engine.formats.gguf import read
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from tests.engine.devices import DEVICES
from tests.engine.models.judge import TOKENS
from tests.tiny import load_model, tiny, write_gguf


def rewrite(source: Path, target: Path, scale: float) -> None:
    """The file with the weights of its layers and of its head halved, `scale` beside them, and what converters write
    for devices that multiply in four bits."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if data.ndim == 2 and (tensor.name.startswith("blk.") or tensor.name == "output.weight"):
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("architecture", "encoding"), [*((name, "F32") for name in CLASSES), ("bitnet", "TQ2_0")])
def test_a_scale_multiplies_the_products_of_its_matrix(
    architecture: str, encoding: str, device: str, tmp_path: Path
) -> None:
    whole, twice, thrice = (tmp_path / f"{name}.gguf" for name in ("whole", "twice", "thrice"))
    write_gguf(whole, tiny(architecture), encoding)
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
