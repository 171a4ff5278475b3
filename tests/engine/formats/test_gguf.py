"""The GGUF reader on sound files, against the `gguf` package; and what it says of faults in single fields."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf as oracle
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from engine import weights
from engine.errors import ModelFileError, UnsupportedModelError
from engine.formats import open_index
from engine.formats.gguf_header import LONG, read_header
from engine.formats.index import TensorIndex, TensorInfo
from engine.texts import Texts
from tests.engine.formats import forge


def stored(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def read_rows(info: TensorInfo, first: int, last: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Rows first … last-1 of a tensor's 2-D view, as uint8 [rows, row_bytes]."""
    n_rows = int(np.prod(info.shape[:-1]))
    row_bytes = info.nbytes // n_rows
    with info.path.open("rb") as file:
        file.seek(info.offset + first * row_bytes)
        return np.frombuffer(file.read((last - first) * row_bytes), np.uint8).reshape(last - first, row_bytes)


def assert_agrees(index: TensorIndex, reader: oracle.GGUFReader) -> None:
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(index.metadata) == list(fields)
    for name, field in fields.items():
        value = index.metadata[name]
        assert (value.tolist() if isinstance(value, array) else value) == field.contents(), name
    assert list(index.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        info = index.tensors[tensor.name]
        assert info.name == tensor.name
        assert info.shape == tuple(tensor.shape.tolist())[::-1]
        assert info.encoding == tensor.tensor_type.name
        assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)


def written(path: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Write a file with the oracle's writer; returns what its tensors decode to."""
    random = np.random.default_rng(5)
    writer = oracle.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_float64("some.float64", 1 / 3)
    writer.add_int64("some.int64", -(2**50))
    writer.add_bool("some.bool", True)
    writer.add_array("some.ints", [1, -2, 3])
    writer.add_token_list(["<s>", "山", "é", "\u0120the"])
    writer.add_chat_template("{{ messages }}\n")
    decoded = {}
    for kind in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"):
        values = random.standard_normal((3, 2, 512)).astype(np.float32)
        number = oracle.GGMLQuantizationType[kind]
        data = quantize(values, number)
        writer.add_tensor(kind, data, raw_dtype=None if kind in ("F32", "F16") else number)
        decoded[kind] = dequantize(data, number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return decoded


def test_a_written_file_reads_as_the_oracle_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    decoded = written(path)
    index = open_index(path)
    assert index.paths == (path,)
    assert_agrees(index, oracle.GGUFReader(path))
    for name, expected in decoded.items():
        ours = weights.get(index.tensors[name].encoding).decode(read_rows(index.tensors[name], 0, 6))
        np.testing.assert_array_equal(ours.reshape(expected.shape), expected)


def test_the_starter_reads_as_the_oracle_reads_it(starter: Path) -> None:
    index = open_index(starter)
    reader = oracle.GGUFReader(starter)
    assert_agrees(index, reader)
    firsts = {tensor.tensor_type: tensor for tensor in reversed(reader.tensors)}
    assert len(firsts) >= 3
    for kind, tensor in firsts.items():
        info = index.tensors[tensor.name]
        theirs = np.atleast_2d(dequantize(tensor.data, kind))[:64]
        ours = weights.get(info.encoding).decode(read_rows(info, 0, len(theirs)))
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value_is_read(version: int, tmp_path: Path) -> None:
    index = open_index(stored(tmp_path / "m.gguf", forge.small(version)))
    assert index.metadata == forge.SMALL_METADATA
    kinds = {name: type(value) for name, value in index.metadata.items()}
    assert kinds == {name: type(value) for name, value in forge.SMALL_METADATA.items()} | {"tokens": Texts}
    data_start = index.tensors["norm"].offset
    assert data_start % 32 == 0
    assert [(t.shape, t.encoding, t.offset - data_start, t.nbytes) for t in index.tensors.values()] == [
        ((4,), "F32", 0, 16),
        ((3, 64), "Q4_1", 32, 120),
        ((5, 3, 2), "F16", 160, 60),
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_big_endian_metadata_is_read(version: int, tmp_path: Path) -> None:
    header = read_header(stored(tmp_path / "m.gguf", forge.small(version, ">")))
    assert header.big_endian
    assert header.version == version
    assert header.metadata == forge.SMALL_METADATA
    assert [(entry.shape, entry.offset) for entry in header.entries] == [((4,), 0), ((3, 64), 32), ((5, 3, 2), 160)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_long_arrays_of_numbers_hold_what_short_ones_do(order: str, tmp_path: Path) -> None:
    few = {
        forge.U8: [0, 255], forge.I8: [-128, 127], forge.U16: [0, 65535], forge.I16: [-32768, 7],
        forge.U32: [0, 4294967295], forge.I32: [-2147483648, 3], forge.F32: [1.5, -0.25], forge.BOOL: [True, False],
        forge.U64: [1, 2**64 - 1], forge.I64: [-(2**63), 5], forge.F64: [1e300, 0.1],
    }  # fmt: skip
    for kind, pair in few.items():
        for count in (2, LONG - 2, LONG, LONG + 2):
            values = pair * (count // 2)
            key = forge.key("values", forge.ARRAY, (kind, values), order)
            header = read_header(stored(tmp_path / "m.gguf", forge.gguf([key], order=order)))
            made = header.metadata["values"]
            assert isinstance(made, Sequence) and list(made) == values
            assert isinstance(made, list) == (count < LONG or kind == forge.BOOL)


def test_a_big_endian_file_of_the_oracle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    writer = oracle.GGUFWriter(path, "llama", endianess=oracle.GGUFEndian.BIG)
    writer.add_context_length(4096)
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    index = open_index(path)
    assert index.metadata["llama.context_length"] == 4096
    assert index.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert not index.tensors


def test_big_endian_weights_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "m.gguf", forge.small(order=">"))
    with pytest.raises(UnsupportedModelError, match=r"m\.gguf.*big-endian"):
        open_index(path)


def test_names_beyond_ascii_work_in_paths_keys_and_tensors(tmp_path: Path) -> None:
    folder = tmp_path / "山 é"
    folder.mkdir()
    data = forge.gguf([forge.key("clé", forge.STRING, "値")], [forge.tensor("poids 重み", [2], 0, 0)], bytes(8))
    index = open_index(stored(folder / "modèle 大.gguf", data))
    assert index.metadata == {"clé": "値"}
    assert index.tensors["poids 重み"].path == folder / "modèle 大.gguf"
    with pytest.raises(ModelFileError, match=r"modèle 大\.gguf.*cut short"):
        open_index(stored(folder / "modèle 大.gguf", data[:-1]))


def test_long_lists_are_read_across_the_readers_buffer(tmp_path: Path) -> None:
    tokens = [f"token {i} " + "é" * (i % 50) for i in range(30_000)]
    long = "x" * 1_000_000
    keys = [
        forge.key("before", forge.STRING, long),
        forge.key("tokens", forge.ARRAY, (forge.STRING, [*tokens, long, "last"])),
        forge.key("scores", forge.ARRAY, (forge.F32, [float(i) for i in range(200_000)])),
        forge.key("after", forge.U32, 7),
    ]
    index = open_index(stored(tmp_path / "m.gguf", forge.gguf(keys)))
    assert index.metadata["before"] == long
    assert index.metadata["tokens"] == [*tokens, long, "last"]
    assert index.metadata["scores"] == array("f", range(200_000))
    assert index.metadata["after"] == 7


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_the_files_own_alignment_is_followed(alignment: int, tmp_path: Path) -> None:
    keys = [forge.key("general.alignment", forge.U32, alignment)]
    tensors = [forge.tensor("a", [1], 0, 0), forge.tensor("b", [1], 0, max(4, alignment))]
    path = stored(tmp_path / "m.gguf", forge.gguf(keys, tensors, bytes(max(4, alignment) + 4), alignment=alignment))
    assert_agrees(open_index(path), oracle.GGUFReader(path))


def test_a_tensor_without_dimensions_is_one_number(tmp_path: Path) -> None:
    index = open_index(stored(tmp_path / "m.gguf", forge.gguf([], [forge.tensor("scale", [], 0, 0)], bytes(4))))
    assert (index.tensors["scale"].shape, index.tensors["scale"].nbytes) == ((), 4)


def test_tensors_may_share_bytes(tmp_path: Path) -> None:
    tensors = [forge.tensor("a", [4], 0, 0), forge.tensor("b", [8], 1, 0)]
    index = open_index(stored(tmp_path / "m.gguf", forge.gguf([], tensors, bytes(16))))
    assert index.tensors["a"].offset == index.tensors["b"].offset


@pytest.mark.parametrize(
    ("ggml_type", "named"),
    [(9, "Q8_1"), (15, "Q8_K"), (31, "Q4_0_4_4"), (26, "I32"), (36, "36"), (42, "Q2_0"), (77, "77")],
)
def test_a_tensor_in_an_unknown_encoding_is_refused_by_name(ggml_type: int, named: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "m.gguf", forge.gguf([], [forge.tensor("blk.0", [256], ggml_type, 0)], bytes(4096)))
    with pytest.raises(UnsupportedModelError, match=rf"'blk\.0' in m\.gguf.*\b{named}\b.*\bQ4_1\b"):
        open_index(path)


ALIGNED = forge.key("general.alignment", forge.U32, 32)

FAULTS: dict[str, tuple[bytes, str]] = {
    "version 1": (forge.gguf(version=1), "version 1;"),
    "version 4": (forge.gguf(version=4), "version 4;"),
    "version 0": (forge.gguf(version=0), "version 0;"),
    "unknown value type": (
        forge.gguf([forge.text("k") + struct.pack("<I", 13) + bytes(64)]),
        "'k' has the unknown type 13",
    ),
    "unknown entry type": (
        forge.gguf([forge.text("k") + struct.pack("<IIQ", 9, 99, 1) + bytes(64)]),
        "'k' has the unknown type 99",
    ),
    "key twice": (forge.gguf([ALIGNED, ALIGNED]), "'general.alignment' appears twice"),
    "tensor twice": (
        forge.gguf([], [forge.tensor("a", [1], 0, 0), forge.tensor("a", [1], 0, 0)], bytes(4)),
        "'a' appears twice",
    ),
    "key that is no UTF-8": (forge.gguf([forge.key(b"\xff\xfe", forge.U8, 1)]), "key 0 is not valid UTF-8"),
    "text that is no UTF-8": (forge.gguf([forge.key("k", forge.STRING, b"\xc3")]), "'k' is not valid UTF-8"),
    "entry that is no UTF-8": (
        forge.gguf([forge.key("k", forge.ARRAY, (forge.STRING, ["fine", b"\xc3"]))]),
        "'k' is not valid UTF-8 in entry 1",
    ),
    "alignment zero": (forge.gguf([forge.key("general.alignment", forge.U32, 0)]), "no power of two"),
    "alignment odd": (forge.gguf([forge.key("general.alignment", forge.U32, 33)]), "no power of two"),
    "alignment negative": (forge.gguf([forge.key("general.alignment", forge.I32, -32)]), "no power of two"),
    "alignment text": (forge.gguf([forge.key("general.alignment", forge.STRING, "32")]), "not a whole number"),
    "alignment true": (forge.gguf([forge.key("general.alignment", forge.BOOL, 1)]), "not a whole number"),
    "alignment beyond the file": (
        forge.gguf([forge.key("general.alignment", forge.U64, 2**63)], [forge.tensor("a", [1], 0, 0)], bytes(64)),
        "'a' in m.gguf should end at byte",
    ),
    "offset between alignments": (
        forge.gguf([], [forge.tensor("a", [1], 0, 16)], bytes(64)),
        "'a' in m.gguf begins at byte 16",
    ),
    "offset beyond the end": (
        forge.gguf([], [forge.tensor("a", [1], 0, 64)], bytes(64)),
        "'a' in m.gguf should end at byte",
    ),
    "offset that wraps": (
        forge.gguf([], [forge.tensor("a", [16], 0, 2**64 - 32)], bytes(64)),
        "'a' in m.gguf should end at byte",
    ),
    "dimension zero": (forge.gguf([], [forge.tensor("a", [4, 0], 0, 0)], bytes(64)), "'a' has a dimension of 0"),
    "dimensions that wrap": (
        forge.gguf([], [forge.tensor("a", [2**32, 2**32], 0, 0)], bytes(64)),
        "'a' in m.gguf should end at byte",
    ),
    "dimensions that wrap to few": (
        forge.gguf([], [forge.tensor("a", [2**63, 2, 2**63, 2], 3, 0)], bytes(64)),
        "'a' in m.gguf should end at byte",
    ),
    "five dimensions": (forge.gguf([], [forge.tensor("a", [1] * 5, 0, 0)], bytes(64)), "'a' claims 5 dimensions"),
    "part of a block": (
        forge.gguf([], [forge.tensor("a", [48, 2], 3, 0)], bytes(64)),
        "'a' in m.gguf has rows of 48 weights, but Q4_1 packs them in blocks of 32",
    ),
    "one byte short": (
        forge.gguf([], [forge.tensor("a", [16], 0, 0)], bytes(63)),
        "'a' in m.gguf should end at byte 128, but the file has only 127",
    ),
    "more keys than bytes": (forge.gguf(n_keys=2**63), "the list of 9223372036854775808 metadata keys goes on past"),
    "more tensors than bytes": (forge.gguf(n_tensors=2**64 - 1), "tensors goes on past"),
    "more keys than are there": (forge.gguf([ALIGNED], n_keys=2), "cut short or damaged"),
    "split count that is no count": (forge.gguf([forge.key("split.count", forge.STRING, "3")]), "split.count"),
    "split count below zero": (forge.gguf([forge.key("split.count", forge.I32, -3)]), "split.count"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, tmp_path: Path) -> None:
    data, message = FAULTS[fault]
    path = stored(tmp_path / "m.gguf", data)
    kind = UnsupportedModelError if fault.startswith("version") else ModelFileError
    with pytest.raises(kind) as refusal:
        open_index(path)
    assert message in str(refusal.value)
    assert "m.gguf" in str(refusal.value)


def test_the_data_of_another_gguf_file_after_the_end_is_told_as_joined(tmp_path: Path) -> None:
    sound = forge.small()
    for joined in (sound + sound, sound + bytes(-len(sound) % 32) + sound, forge.gguf() + sound):
        with pytest.raises(ModelFileError, match="joined end to end"):
            open_index(stored(tmp_path / "m.gguf", joined))
    assert open_index(stored(tmp_path / "m.gguf", sound + b"padding")).metadata == forge.SMALL_METADATA
