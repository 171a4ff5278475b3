from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGUFReader

from bench.make_big import LAYOUTS, PRESETS, Shape, copied_tokenizer, write_big
from engine import Budgets, Engine
from engine.formats import open_index
from tests.bytewise import bytewise

DENSE = Shape(layers=2, hidden=512, heads=4, kv_heads=2, head_dim=64, ffn=1024, tied=True)
MIXTURE = Shape(layers=2, hidden=256, heads=4, kv_heads=1, head_dim=64, ffn=256, experts=8, experts_used=2)


@pytest.mark.parametrize("shape", [DENSE, MIXTURE], ids=["dense", "mixture"])
@pytest.mark.parametrize("encoding", LAYOUTS)
def test_a_file_of_every_encoding_runs_with_finite_logits(encoding: str, shape: Shape, folder: Path) -> None:
    path = write_big(folder / "big.gguf", replace(shape, attention=encoding, feed_forward=encoding), bytewise)
    with Engine.load(path, Budgets(context=64, threads=1)) as engine:
        assert engine.info.architecture == shape.architecture
        tokens = engine.fingerprint("The mill", 12).tokens
        assert len(tokens) == 12
        if not shape.tied:
            assert len(set(tokens)) > 6  # so that routers choose anew for each


@pytest.mark.parametrize("encoding", LAYOUTS)
def test_weights_have_the_size_of_a_trained_matrix(encoding: str, folder: Path) -> None:
    """By the `gguf` package's own decoding."""
    write_big(folder / "big.gguf", replace(DENSE, attention=encoding), bytewise)
    tensor = next(each for each in GGUFReader(folder / "big.gguf").tensors if each.name == "blk.1.attn_q.weight")
    weights = gguf.dequantize(tensor.data, tensor.tensor_type)
    assert weights.shape == (256, 512)
    assert weights.std() == pytest.approx(1 / np.sqrt(512), rel=0.1)
    assert abs(weights.mean()) < 0.2 * weights.std()


def test_experts_differ_and_a_seed_gives_the_same_file(folder: Path) -> None:
    one, two, other = (
        write_big(folder / f"{name}.gguf", MIXTURE, bytewise, seed=seed).read_bytes()
        for name, seed in (("one", 5), ("two", 5), ("other", 6))
    )
    assert one == two != other and len(one) == len(other)
    info = open_index(folder / "one.gguf").tensors["blk.0.ffn_gate_exps.weight"]
    experts = np.frombuffer(one[info.offset : info.offset + info.nbytes], np.uint8).reshape(8, -1)
    assert len({expert.tobytes() for expert in experts}) == 8


def test_the_tokenizer_of_another_file_is_copied(folder: Path, starter: Path) -> None:
    path = write_big(folder / "big.gguf", MIXTURE, copied_tokenizer(starter))
    theirs, ours = (open_index(each).metadata for each in (starter, path))
    for key in ("tokens", "merges", "pre"):
        assert ours[f"tokenizer.ggml.{key}"] == theirs[f"tokenizer.ggml.{key}"]
    with Engine.load(path, Budgets(context=64)) as engine:
        assert engine.info.vocabulary == len(theirs["tokenizer.ggml.tokens"])


def test_presets_are_of_the_sizes_that_they_name() -> None:
    """In bytes of Q8_0 and Q4_K, a vocabulary of 49 k left out; the mixture keeps the ratios of Qwen3-235B-A22B."""
    dense, mixture, wide = (PRESETS[name] for name in ("dense-2gb", "mixture-4gb", "mixture-4gb-wide"))
    for shape, size in ((dense, 2e9), (mixture, 4.3e9), (wide, 4.3e9)):
        attention = 2 * shape.hidden * (shape.heads + shape.kv_heads) * shape.head_dim
        feed_forward = 3 * shape.hidden * shape.ffn * max(shape.experts, 1)
        total = shape.layers * (attention * 34 / 32 + feed_forward * 144 / 256)
        assert total == pytest.approx(size, rel=0.05)
    assert (wide.hidden, wide.heads, wide.kv_heads, wide.ffn, wide.experts) == (4096, 64, 4, 1536, 128)
    assert all(2 * a == b for a, b in ((mixture.hidden, wide.hidden), (mixture.ffn, wide.ffn)))
