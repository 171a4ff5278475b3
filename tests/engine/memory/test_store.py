from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.buffers import ALIGNMENT, U8
from engine.cancel import Cancel, Cancelled
from engine.errors import ModelFileError
from engine.formats import open_index
from engine.formats.index import TensorIndex, TensorInfo
from engine.kernels.ops import Handle, Ops, Weight
from engine.kernels.plain import PlainOps
from engine.memory import tensor_reader
from engine.memory.meter import Meter
from engine.memory.reader import ModelFile
from engine.memory.store import WeightStore
from engine.types import LoadProgress
from tests.tiny_chat import HIDDEN, write_tiny_chat


class RecordingOps(PlainOps):
    """PlainOps that remembers the weights it was given."""

    def __init__(self) -> None:
        self.given: list[Weight] = []

    def matrix(self, weight: Weight) -> Handle:
        self.given.append(weight)
        return super().matrix(weight)


@pytest.fixture
def index(tmp_path: Path) -> TensorIndex:
    return open_index(write_tiny_chat(tmp_path / "山 é.gguf"))


@pytest.fixture
def open_store(index: TensorIndex) -> Iterator[Callable[..., WeightStore]]:
    """Makes stores over the index and closes them."""
    with ExitStack() as stack:

        def make(ops: Ops | None = None, meter: Meter | None = None, **options: object) -> WeightStore:
            return stack.enter_context(closing(WeightStore(index, ops or PlainOps(), meter or Meter(), **options)))

        yield make


def test_bytes_come_as_the_gguf_package_reads_them(index: TensorIndex, open_store: Callable[..., WeightStore]) -> None:
    ops, meter = RecordingOps(), Meter()
    store = open_store(ops, meter)
    oracle = {tensor.name: tensor for tensor in gguf.GGUFReader(index.paths[0]).tensors}
    for name, info in index.tensors.items():
        if len(info.shape) == 2:
            store.matrix(name, *info.shape)
            assert ops.given[-1].data.tobytes() == oracle[name].data.tobytes()
            assert ops.given[-1].data.ctypes.data % ALIGNMENT == 0
        else:
            np.testing.assert_array_equal(store.vector(name, *info.shape), oracle[name].data)
    assert store.bytes_read == store.total == meter.use().weights == sum(t.n_bytes for t in oracle.values())


def test_parts_of_a_tensor_share_its_bytes_which_are_read_once(
    index: TensorIndex, open_store: Callable[..., WeightStore]
) -> None:
    ops, meter = RecordingOps(), Meter()
    store = open_store(ops, meter)
    first, second, third = store.parts("output.weight", (100, 96, 64), HIDDEN)
    whole = store.matrix("output.weight", 260, HIDDEN).weight.data
    assert store.parts("output.weight", (100, 160), HIDDEN)[0] is first
    assert [len(given.data) for given in ops.given] == [given.rows for given in ops.given] == [100, 96, 64, 260, 160]
    np.testing.assert_array_equal(np.concatenate([part.weight.data for part in (first, second, third)]), whole)
    assert all(np.shares_memory(given.data, whole) for given in ops.given)
    assert store.bytes_read == meter.use().weights == index.tensors["output.weight"].nbytes
    with pytest.raises(ModelFileError, match=r"output\.weight .* has the shape"):
        store.parts("output.weight", (100, 161), HIDDEN)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_a_matrix_that_lies_by_columns_is_brought_into_rows(dtype: type[np.floating], tmp_path: Path) -> None:
    values = np.arange(15, dtype=dtype).reshape(5, 3)
    (tmp_path / "matrix").write_bytes(values.tobytes())
    encoding = {np.float32: "F32", np.float16: "F16"}[dtype]
    info = TensorInfo("w", (3, 5), encoding, tmp_path / "matrix", 0, values.nbytes, transposed=True)
    with closing(WeightStore(TensorIndex((info.path,), {}, {"w": info}), PlainOps(), Meter())) as store:
        data = store.matrix("w", 3, 5).weight.data
    np.testing.assert_array_equal(data.view(dtype), values.T)


@pytest.mark.parametrize("shape", [(1152, 2560), (2560, 1151), (400_000, 7), (7, 400_000)])
def test_a_matrix_that_lies_by_columns_is_not_held_twice(shape: tuple[int, int], tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2**16, shape[::-1], np.uint16)
    (tmp_path / "matrix").write_bytes(bytes(32) + values.tobytes())
    info = TensorInfo("w", shape, "F16", tmp_path / "matrix", 32, values.nbytes, transposed=True)
    told: list[int] = []
    into = np.empty(values.nbytes, np.uint8)
    with closing(tensor_reader.TensorReader(progress=lambda step: told.append(step.done))) as reader:
        tracemalloc.start()
        try:
            reader.read(into, info)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    np.testing.assert_array_equal(into.view(np.uint16).reshape(shape), values.T)
    assert peak < max(tensor_reader.TURNED, 2 * shape[0]) + (256 << 10) < values.nbytes
    assert told == sorted(told) and told[-1] == values.nbytes


def test_a_tensor_asked_for_twice_is_read_once(index: TensorIndex, open_store: Callable[..., WeightStore]) -> None:
    meter = Meter()
    store = open_store(meter=meter)
    first = store.matrix("output.weight", 260, HIDDEN)
    assert store.matrix("output.weight", 260, HIDDEN) is first
    store.vector("output_norm.weight", HIDDEN)
    store.host("output_norm.weight", HIDDEN)
    expected = index.tensors["output.weight"].nbytes + index.tensors["output_norm.weight"].nbytes
    assert store.bytes_read == meter.use().weights == expected


def test_numbers_are_held_and_counted_once_as_float32(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 500_000).astype(np.float16)
    (tmp_path / "numbers").write_bytes(values.tobytes())
    info = TensorInfo("w", (values.size,), "F16", tmp_path / "numbers", 0, values.nbytes)
    meter = Meter()
    tracemalloc.start()
    try:
        with closing(WeightStore(TensorIndex((info.path,), {}, {"w": info}), PlainOps(), meter)) as store:
            held = store.host("w", values.size)
        assert tracemalloc.get_traced_memory()[0] < 1.1 * held.nbytes
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(held, values)
    assert meter.use().weights == held.nbytes == 2 * values.nbytes == 2 * store.bytes_read


def test_progress_rises_to_the_total(
    index: TensorIndex, open_store: Callable[..., WeightStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_reader, "PIECE", 1000)
    seen: list[LoadProgress] = []
    store = open_store(progress=seen.append)
    for name, info in index.tensors.items():
        (store.matrix if len(info.shape) == 2 else store.vector)(name, *info.shape)
    done = [progress.done for progress in seen]
    assert done == sorted(set(done))
    assert max(np.diff(done)) <= 1000
    assert done[-1] == seen[-1].total == store.total


def test_cancel_stops_between_two_pieces_of_one_tensor(
    index: TensorIndex, open_store: Callable[..., WeightStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_reader, "PIECE", 1000)
    cancel, seen = Cancel(), []

    def progress(step: LoadProgress) -> None:
        seen.append(step.done)
        if len(seen) == 2:
            cancel.set()

    store = open_store(progress=progress, cancel=cancel)
    with pytest.raises(Cancelled):
        store.matrix("token_embd.weight", 260, HIDDEN)
    assert seen == [1000, 2000]


def test_a_missing_tensor_and_a_wrong_shape_are_named(
    index: TensorIndex, open_store: Callable[..., WeightStore]
) -> None:
    store = open_store()
    assert not store.has("blk.9.attn_q.weight")
    with pytest.raises(ModelFileError, match=r"blk\.9\.attn_q\.weight"):
        store.matrix("blk.9.attn_q.weight", HIDDEN, HIDDEN)
    with pytest.raises(ModelFileError, match=r"output\.weight .* 260 by 64, .* 64 by 260"):
        store.matrix("output.weight", HIDDEN, 260)
    with pytest.raises(ModelFileError, match=r"output_norm\.weight .* 64, .* 65"):
        store.vector("output_norm.weight", HIDDEN + 1)


def test_parts_of_experts_share_their_bytes_and_nothing_is_copied(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    both, biases = draws.standard_normal((3, 10, 32), np.float32), draws.standard_normal((3, 6), np.float32)
    writer = gguf.GGUFWriter(tmp_path / "experts.gguf", "llama")
    writer.add_tensor("both", both)
    writer.add_tensor("biases", biases)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ops, meter = PlainOps(), Meter()
    with closing(WeightStore(open_index(tmp_path / "experts.gguf"), ops, meter)) as store:
        first, second = (handle.weight for handle in store.experts("both", 3, (6, 4), 32))
        whole = store.experts("both", 3, (10,), 32)[0].weight
        assert store.experts("both", 3, (6, 4), 32)[1].weight is second
        assert (whole.n_experts, first.rows, second.rows, second.columns) == (3, 6, 4, 32)
        assert np.array_equal(first.data.copy().view(np.float32), both[:, :6])
        assert np.array_equal(second.data.copy().view(np.float32), both[:, 6:])
        assert np.shares_memory(first.data, whole.data) and np.shares_memory(second.data, whole.data)
        assert np.array_equal(ops.host(store.vector("biases", 3, 6)), biases)
        assert store.bytes_read == meter.use().weights == store.total
        with pytest.raises(ModelFileError, match=r"both .* 3 by 10 by 32, .* 3 by 11 by 32"):
            store.experts("both", 3, (6, 5), 32)
        with pytest.raises(ModelFileError, match=r"biases .* 3 by 6, .* 2 by 6"):
            store.vector("biases", 2, 6)


def test_a_file_that_shrank_after_it_was_indexed_is_named_with_the_tensor(
    index: TensorIndex, open_store: Callable[..., WeightStore]
) -> None:
    path = index.paths[0]
    path.write_bytes(path.read_bytes()[:-5000])
    store = open_store()
    with pytest.raises(ModelFileError, match=r"山 é\.gguf ends inside tensor output\.weight, at byte \d+"):
        store.matrix("output.weight", 260, HIDDEN)


def test_a_file_that_went_away_is_named(index: TensorIndex, open_store: Callable[..., WeightStore]) -> None:
    index.paths[0].unlink()
    with pytest.raises(ModelFileError, match=r"山 é\.gguf"):
        open_store().matrix("output.weight", 260, HIDDEN)


def test_a_read_that_hangs_can_be_cancelled(
    index: TensorIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)  # so that neither opening blocks nor reading ends
    cancel, hung = Cancel(), threading.Event()

    def hang(file: ModelFile, into: U8, offset: int, tensor: str) -> None:
        hung.set()
        os.read(fifo, 1)

    monkeypatch.setattr(ModelFile, "read", hang)
    with closing(WeightStore(index, PlainOps(), Meter(), cancel=cancel)) as store:
        threading.Thread(target=lambda: (hung.wait(), cancel.set())).start()
        with pytest.raises(Cancelled):
            store.vector("output_norm.weight", HIDDEN)
    os.write(fifo, b"....")
