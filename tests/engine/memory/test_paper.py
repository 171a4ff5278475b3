"""Passes on paper, held against real ones: what they take, and which bytes of which tensors they use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.decode.cache import KVCache
from engine.decode.forward import Forward
from engine.formats import open_index
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.memory.meter import Meter
from engine.memory.outline import outline
from engine.memory.paper import PaperOps
from engine.memory.step import activation_bytes, pass_lengths, step_of_file
from engine.models.model import Model
from tests.engine.formats.checkpoints import write_checkpoint
from tests.engine.models.families import FAMILIES
from tests.engine.models.test_sweep import TABLE, Swept
from tests.tiny import CONTEXT, load_model

LENGTHS = (1, 2, 3, 5, 16, 17, 40, 60)
SLACK = 1 << 20
CASES = [(name, encoding) for name in FAMILIES for encoding in TABLE.get(name, Swept()).encodings]


@pytest.fixture
def tiny_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The tiny model of a family in an encoding, both named by the test."""
    name, encoding = request.param
    family = FAMILIES[name]
    family.write(tmp_path / "tiny.gguf", family.make(**TABLE.get(name, Swept()).changes), encoding)
    return tmp_path / "tiny.gguf"


def run(model: Model, ops: Ops, context: int, lengths: Sequence[int]) -> list[int]:
    """Run passes of so many rows up to the end of the context, and one row of each through the head: → bytes held."""
    held = []
    with closing(KVCache(ops, model.caches, context, "f16", Meter())) as cache:
        forward = Forward(model, ops, cache)
        for n in lengths:
            cache.truncate(0)
            if context > n:
                forward.advance([1] * (context - n))
            model.logits(ops, ops.last(forward.advance([1] * n), 1))
            held.append(ops.nbytes)
    return held


@pytest.mark.parametrize("tiny_file", CASES, ids=lambda case: "-".join(case), indirect=True)
def test_no_pass_takes_more_than_on_paper_and_not_much_less(tiny_file: Path) -> None:
    threads = 3
    with closing(NativeOps(threads)) as native:
        real = run(load_model(tiny_file, native), native, CONTEXT, LENGTHS)
    model = outline(open_index(tiny_file), CONTEXT)
    told = run(model, PaperOps(threads), CONTEXT, LENGTHS)
    for bound, held in zip(told, real, strict=True):
        assert held <= bound <= 1.25 * held + SLACK


def test_the_room_for_tensors_is_exact(starter: Path) -> None:
    with closing(NativeOps(2)) as native:
        model = load_model(starter, native, 256)
        real = run(model, native, 256, (1, 1, 7, 100, 256))
        scratch = native._lib.ms_pool_bytes(native._pool)
        exact = real[-1] - scratch
    paper = PaperOps(2)
    told = run(outline(open_index(starter), 256), paper, 256, (1, 1, 7, 100, 256))
    assert told[-1] - paper._scratch.nbytes == exact
    assert scratch <= paper._scratch.nbytes <= 1.25 * scratch
    assert all(held <= bound <= 1.1 * held + (SLACK >> 2) for bound, held in zip(told, real, strict=True))


def test_lengths_up_to_a_chunk_are_covered_by_a_few(starter: Path) -> None:
    model = outline(open_index(starter), 1)
    assert pass_lengths(1) == [1]
    assert pass_lengths(20) == [*range(1, 17), 20]
    assert pass_lengths(512) == [*range(1, 17), 32, 64, 128, 256, 512]
    for chunk in (5, 16, 33, 64):
        few, all_ = (activation_bytes(model, lengths, threads=2, context=64) for lengths in (
            pass_lengths(chunk), range(1, chunk + 1)
        ))  # fmt: skip
        assert few[chunk] == all_[chunk]


def test_without_recording_passes_share_their_room(starter: Path) -> None:
    model = outline(open_index(starter), 1)
    shared, own = (activation_bytes(model, [1, 3], threads=2, context=64, records=records) for records in (False, True))
    assert shared[3] < own[3]


ON_THE_HOST = (".scale", ".layer_output_scale.weight", "rope_freqs.weight")
"""Endings of tensors that are read when a model is built, and not by a pass."""


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_passes_each_tensor_once_one_row_of_a_table_and_the_experts_chosen(
    name: str, tied: bool, tmp_path: Path
) -> None:
    swept, family = TABLE.get(name, Swept()), FAMILIES[name]
    if tied not in swept.tied:
        return
    family.write(tmp_path / "tiny.gguf", family.make(**(swept.changes | {"tie_word_embeddings": tied})), "Q8_0")
    index = open_index(tmp_path / "tiny.gguf")
    architecture = index.metadata["general.architecture"]
    count, k = (index.metadata.get(f"{architecture}.expert_{key}count", 1) for key in ("", "used_"))
    step = step_of_file(index)
    shared = swept.changes.get("num_kv_shared_layers", 0)
    first_shared = int(swept.changes.get("num_hidden_layers", 0)) - int(shared)
    for tensor, info in index.tensors.items():
        layer = int(tensor.split(".")[1]) if tensor.startswith("blk.") else -1
        skipped = shared and layer >= first_shared and tensor.split(".")[2] in ("attn_k", "attn_v", "attn_k_norm")
        want = info.nbytes
        if tensor.endswith("embd.weight"):
            row = info.nbytes // info.shape[0]
            want = row + (info.nbytes if tensor == "token_embd.weight" and "output.weight" not in index.tensors else 0)
        elif "_exps." in tensor and not tensor.endswith(".scale"):
            want = info.nbytes * k // count
        elif skipped or tensor.endswith(ON_THE_HOST):
            want = 0
        assert step.passed.get(tensor, 0) == want, tensor


def test_multiply_adds_are_the_matrices_and_the_heads_are_shared_out(starter: Path) -> None:
    index = open_index(starter)
    step = step_of_file(index)
    blocks = sum(np.prod(info.shape) for name, info in index.tensors.items() if name[:3] == "blk" and info.shape[1:])
    head = np.prod(index.tensors["token_embd.weight"].shape)
    assert step.multiply_adds(1) == blocks + head
    assert step.multiply_adds(512) == blocks + head // 512


def test_the_same_checkpoint_and_file_have_the_same_step(tmp_path: Path) -> None:
    family = FAMILIES["qwen3moe"]
    model = family.make()
    family.write(tmp_path / "tiny.gguf", model)
    write_checkpoint(tmp_path / "checkpoint", model)
    file, checkpoint = (step_of_file(open_index(tmp_path / name)) for name in ("tiny.gguf", "checkpoint"))
    assert file.multiply_adds(7) == checkpoint.multiply_adds(7)
    assert sum(file.passed.values()) == sum(checkpoint.passed.values())


def test_gates_go_with_what_they_gate_and_experts_all_together(tmp_path: Path) -> None:
    family = FAMILIES["qwen35moe"]
    family.write(tmp_path / "tiny.gguf", family.make())
    step = step_of_file(open_index(tmp_path / "tiny.gguf"))
    names = [[weight.tensor for weight in use.weights] for use in step.uses]
    assert names[0] == ["token_embd.weight"] and names[-1] == ["output.weight"]
    for layer in range(4):
        trio = [f"blk.{layer}.ffn_{part}_exps.weight" for part in ("gate_up", "gate_up", "down")]
        shared = [f"blk.{layer}.ffn_{part}_shexp.weight" for part in ("gate", "up")]
        assert names.index([f"blk.{layer}.ffn_gate_inp.weight"]) < names.index(trio) < names.index(shared)
    assert {use.way for use in step.uses} == {"rows", "walk", "experts"}
