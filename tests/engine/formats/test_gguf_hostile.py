"""Files that are damaged on purpose: nothing but a MillstreamError may escape, and memory stays small."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats import gguf_header, open_index
from engine.formats.gguf_header import MAX_HEADER, MAX_KEYS, MAX_TENSORS, MAX_VALUES
from engine.formats.index import TensorIndex
from tests.engine.formats import forge

MEMORY = 4 << 20
"""Bytes that opening any of the small files below may take."""


@pytest.fixture
def memory() -> Iterator[None]:
    """Fails the test where more than MEMORY bytes were allocated at once while it ran."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def opened(path: Path, data: bytes) -> TensorIndex | None:
    """The index, or None where the file was refused. Whatever else is raised fails the test."""
    path.write_bytes(data)
    try:
        index = open_index(path)
    except MillstreamError as error:
        assert 20 < len(str(error)) < 1000
        return None
    for info in index.tensors.values():
        assert 0 < info.offset < info.offset + info.nbytes <= len(data)
    return index


def refused(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_index(path)
    return str(caught.value)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_truncation_is_refused(order: str, tmp_path: Path) -> None:
    data = forge.small(order=order)
    for length in range(len(data)):
        assert opened(tmp_path / "m.gguf", data[:length]) is None, length


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("order", "bits"), [("<", (0, 3, 7)), (">", (5,))])
def test_flipped_bits_in_every_byte_of_the_header_are_survived(
    order: str, bits: tuple[int, ...], tmp_path: Path
) -> None:
    sound = forge.small(order=order)
    header_bytes = len(sound) - 220
    refusals = 0
    for at in range(header_bytes):
        for bit in bits:
            data = bytearray(sound)
            data[at] ^= 1 << bit
            refusals += opened(tmp_path / "m.gguf", data) is None
    assert refusals > header_bytes // 2


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("extreme", [0, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1])
def test_extreme_numbers_anywhere_are_survived(extreme: int, tmp_path: Path) -> None:
    sound = forge.small()
    for at in range(4, len(sound) - 220):
        data = sound[:at] + struct.pack("<Q", extreme) + sound[at + 8 :]
        opened(tmp_path / "m.gguf", data)


@pytest.mark.usefixtures("memory")
def test_random_damage_is_survived(tmp_path: Path) -> None:
    dice = random.Random(7)
    sound = forge.small()
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(4, len(data))
            action = dice.randrange(4)
            if action == 0:
                data[at : at + dice.randint(1, 16)] = dice.randbytes(dice.randint(0, 16))
            elif action == 1:
                data[at:at] = data[dice.randrange(len(data)) :][: dice.randint(1, 64)]
            elif action == 2:
                del data[at : at + dice.randint(1, 64)]
            else:
                data[at : at + 4] = struct.pack("<I", dice.choice([0, 1, 8, 9, 9, 12, 13, 2**31]))
        opened(tmp_path / "m.gguf", bytes(data))


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("kind", range(13))
@pytest.mark.parametrize("count", [2**20, 2**32, 2**61, 2**63, 2**64 - 1])
def test_an_array_longer_than_the_file_is_refused(kind: int, count: int, tmp_path: Path) -> None:
    key = forge.text("k") + struct.pack("<IIQ", forge.ARRAY, kind, count)
    assert opened(tmp_path / "m.gguf", forge.gguf([key, bytes(64)], n_keys=1)) is None


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("length", [2**20, 2**32, 2**63, 2**64 - 1])
def test_a_text_longer_than_the_file_is_refused(length: int, tmp_path: Path) -> None:
    long = struct.pack("<Q", length) + b"abc"
    entry = struct.pack("<IIQQ", forge.ARRAY, forge.STRING, 1, length) + b"abc"
    for header in (
        forge.gguf([long + bytes(64)]),
        forge.gguf([forge.text("k") + struct.pack("<I", forge.STRING) + long + bytes(64)]),
        forge.gguf([forge.text("k") + entry + bytes(64)]),
        forge.gguf([], [long + bytes(64)]),
    ):
        assert opened(tmp_path / "m.gguf", header) is None


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("depth", [1, 2, 20_000])
def test_arrays_of_arrays_are_refused(depth: int, tmp_path: Path) -> None:
    nested = struct.pack("<IQ", forge.ARRAY, 1) * depth + struct.pack("<IQ", forge.U8, 0)
    (tmp_path / "m.gguf").write_bytes(forge.gguf([forge.text("k") + struct.pack("<I", forge.ARRAY) + nested]))
    with pytest.raises(UnsupportedModelError, match=r"m\.gguf.*'k' is an array of arrays"):
        open_index(tmp_path / "m.gguf")


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "header",
    [
        forge.text("k") + struct.pack("<IIQ", forge.ARRAY, forge.U8, 2**27),
        forge.text("k") + struct.pack("<IIQ", forge.ARRAY, forge.U8, MAX_VALUES + 1),
        forge.text("k") + struct.pack("<IIQ", forge.ARRAY, forge.STRING, MAX_VALUES),
        forge.text("k") + struct.pack("<IIQ", forge.ARRAY, forge.F64, MAX_VALUES),
        forge.text("k") + struct.pack("<IQ", forge.STRING, 2**27),
        struct.pack("<Q", 2**27),
    ],
)
def test_a_header_of_gigabytes_is_refused_before_it_is_read(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(forge.gguf([header]))
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    assert "m.gguf" in refused(path)


@pytest.mark.usefixtures("memory")
def test_more_keys_or_tensors_than_any_model_has_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for header in (forge.gguf(n_keys=MAX_KEYS + 1), forge.gguf(n_tensors=MAX_TENSORS + 1)):
        path.write_bytes(header)
        with path.open("r+b") as file:
            file.truncate(MAX_HEADER)
        assert "allowed" in refused(path)


def test_the_bound_on_values_holds_over_all_arrays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "MAX_VALUES", 10)
    five, six = [forge.key(f"k{n}", forge.ARRAY, (forge.STRING, ["x"] * n)) for n in (5, 6)]
    four = forge.key("k4", forge.ARRAY, (forge.U8, [1] * 4))
    assert opened(tmp_path / "m.gguf", forge.gguf([four, six])) is not None
    assert opened(tmp_path / "m.gguf", forge.gguf([four, five, six])) is None


@pytest.mark.usefixtures("memory")
def test_long_names_do_not_make_long_errors(tmp_path: Path) -> None:
    name = "n" * 60_000
    assert opened(tmp_path / "m.gguf", forge.gguf([forge.key(name, forge.U8, 1)] * 2)) is None
    assert opened(tmp_path / "m.gguf", forge.gguf([], [forge.tensor(name, [256], 15, 0)], bytes(256))) is None
    assert opened(tmp_path / "m.gguf", forge.gguf([], [forge.tensor(name, [256], 0, 0)], bytes(256))) is None
