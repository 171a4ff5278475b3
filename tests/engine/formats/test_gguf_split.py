"""Models split over several GGUF files."""

from __future__ import annotations

from pathlib import Path

import gguf as oracle
import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.formats import open_index
from tests.engine.formats import forge


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model of three files, written by the oracle, five tensors in all."""
    writer = oracle.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    writer.add_block_count(5)
    for number in range(5):
        writer.add_tensor(f"blk.{number}", np.full((2, 8), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("model-*.gguf"))
    assert len(paths) == 3
    return paths


def part(number: int, count: int, tensors: list[bytes], total: int | None = None) -> bytes:
    keys = [forge.key("split.no", forge.U16, number), forge.key("split.count", forge.U16, count)]
    if total is not None:
        keys.append(forge.key("split.tensors.count", forge.I32, total))
    return forge.gguf(keys, tensors, bytes(32))


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_opening_any_part_opens_all(opened: int, parts: list[Path]) -> None:
    index = open_index(parts[opened])
    assert index.paths == tuple(parts)
    assert index.metadata["llama.block_count"] == 5
    assert list(index.tensors) == [f"blk.{number}" for number in range(5)]
    for number, info in enumerate(index.tensors.values()):
        assert info.path == parts[number // 2]
        values = np.fromfile(info.path, np.float32, count=16, offset=info.offset)
        np.testing.assert_array_equal(values, np.full(16, number))


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_named(missing: int, parts: list[Path]) -> None:
    parts[missing].unlink()
    opened = parts[0 if missing else 1]
    with pytest.raises(ModelFileError, match=rf"Part {missing + 1} of 3 .*missing.*{parts[missing].name}"):
        open_index(opened)


def test_a_damaged_part_is_named(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[1].read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=rf"{parts[1].name}.*cut short"):
        open_index(parts[0])


def test_a_renamed_part_is_told_its_place(parts: list[Path]) -> None:
    renamed = parts[1].rename(parts[1].with_name("my model.gguf"))
    with pytest.raises(ModelFileError, match=r"my model\.gguf is part 2 .*3 files.*-00002-of-00003\.gguf"):
        open_index(renamed)


def test_a_count_that_differs_from_the_names_is_refused(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("model-00001-of-00002.gguf"))
    with pytest.raises(ModelFileError, match="3 files"):
        open_index(renamed)


def test_swapped_parts_are_refused(parts: list[Path]) -> None:
    second, third = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(third)
    parts[2].write_bytes(second)
    with pytest.raises(ModelFileError, match=rf"{parts[1].name} says of itself that it is part 3 of 3"):
        open_index(parts[0])


def test_a_part_that_is_no_part_is_refused(parts: list[Path]) -> None:
    parts[2].write_bytes(forge.small())
    with pytest.raises(ModelFileError, match=rf"{parts[2].name} says of itself that it is part 1 of 1"):
        open_index(parts[0])


def test_a_wrong_total_of_tensors_is_refused(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(part(0, 2, [forge.tensor("a", [1], 0, 0)], total=3))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(part(1, 2, [forge.tensor("b", [1], 0, 0)], total=3))
    with pytest.raises(ModelFileError, match=r"hold 2 tensors, but should hold 3"):
        open_index(first)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(part(0, 2, [forge.tensor("a", [1], 0, 0)]))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(part(1, 2, [forge.tensor("a", [1], 0, 0)]))
    with pytest.raises(ModelFileError, match=r"'a' is both in m-00001-of-00002\.gguf and in m-00002-of-00002\.gguf"):
        open_index(first)


@pytest.mark.parametrize("name", ["model.gguf", "model-00001-of-00003.gguf"])
def test_parts_joined_by_cat_are_told_as_such(name: str, parts: list[Path]) -> None:
    joined = b"".join(path.read_bytes() for path in parts)
    path = parts[0].with_name(name)
    path.write_bytes(joined)
    with pytest.raises(ModelFileError, match="joined end to end"):
        open_index(path)


@pytest.mark.parametrize("count", [0, 1])
def test_a_model_merged_again_is_a_single_file(count: int, tmp_path: Path) -> None:
    """llama.cpp's gguf-split leaves `split.count` 0 behind when it merges."""
    path = tmp_path / "m.gguf"
    path.write_bytes(part(0, count, [forge.tensor("a", [1], 0, 0)], total=1))
    assert open_index(path).paths == (path,)


def test_a_claim_of_very_many_parts_ends_at_the_first_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-65535.gguf"
    path.write_bytes(part(0, 65535, []))
    with pytest.raises(ModelFileError, match="Part 2 of 65535"):
        open_index(path)
