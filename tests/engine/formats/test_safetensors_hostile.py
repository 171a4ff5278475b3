"""Safetensors files that are damaged or made to do harm: a sentence each time, and no memory by their own measure."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from engine.errors import MillstreamError, ModelFileError, UnsupportedModelError
from engine.formats.safetensors import read_header

NAME = "山 é.safetensors"


def forged(header: object, data: bytes = bytes(16), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: object = "F32", shape: object = (4,), span: object = (0, 16)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


def refusal(folder: Path, content: bytes, kind: type[MillstreamError] = ModelFileError) -> str:
    path = folder / NAME
    path.write_bytes(content)
    with pytest.raises(kind) as caught:
        read_header(path)
    assert NAME in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def test_tensors_lie_where_the_library_reads_them(folder: Path) -> None:
    draws = np.random.default_rng(1)
    tensors = {
        "norm": draws.normal(size=5).astype(np.float32),
        "山.weight": draws.normal(size=(3, 7)).astype(np.float16),
        "cube": draws.integers(0, 9, (2, 3, 4)),
        "scalar": np.array(2.5, np.float32),
    }
    save_file(tensors, folder / NAME, metadata={"format": "pt"})
    found = read_header(folder / NAME)
    with safe_open(folder / NAME, "np") as judge:
        assert set(found) == set(judge.keys())
        for name, info in found.items():
            data = np.fromfile(folder / NAME, np.uint8, info.nbytes, offset=info.offset)
            assert data.tobytes() == judge.get_tensor(name).tobytes()
            assert info.shape == tensors[name].shape


CASES: dict[str, tuple[bytes, str]] = {
    "length past the end": (forged({}, b"", length=1 << 31), "goes on past the end of the file"),
    "a byte too few": (forged({"a": entry()}, bytes(15)), "should end at byte .* cut short"),
    "a byte too many": (forged({"a": entry()}, bytes(17)), "1 bytes follow its last tensor"),
    "overlap": (forged({"a": entry(), "b": entry(span=(12, 28))}, bytes(28)), "'b' overlaps tensor 'a'"),
    "gap": (forged({"a": entry(), "b": entry(span=(20, 36))}, bytes(36)), "'b' leaves a gap after tensor 'a'"),
    "the same span twice": (forged({"a": entry(), "b": entry()}), "overlaps"),
    "shape asks for more": (forged({"a": entry(shape=(5,))}), "has 16 bytes, but its shape .* asks for 20"),
    "shape wraps around": (forged({"a": entry(shape=(2**32, 2**32, 4))}), "asks for"),
    "huge extent": (forged({"a": entry(shape=(10**30,))}), "has the shape"),
    "negative extent": (forged({"a": entry(shape=(-4,))}), "has the shape"),
    "extent of 0": (forged({"a": entry(shape=(0, 4))}), "has the shape"),
    "extent as text": (forged({"a": entry(shape=("4",))}), "has the shape"),
    "extent as truth": (forged({"a": entry(shape=(True, 4))}), "has the shape"),
    "too many dimensions": (forged({"a": entry(shape=(1,) * 9)}), "has the shape"),
    "shape no list": (forged({"a": entry(shape={})}), "has the shape"),
    "offsets backwards": (forged({"a": entry(span=(16, 0))}), "no span of bytes"),
    "offset as float": (forged({"a": entry(span=(0.0, 16.0))}), "no span of bytes"),
    "three offsets": (forged({"a": entry(span=(0, 8, 16))}), "no span of bytes"),
    "no offsets": (forged({"a": {"dtype": "F32", "shape": [4]}}), "no span of bytes"),
    "type no text": (forged({"a": entry(dtype=7)}), "no type of numbers"),
    "entry no object": (forged({"a": [1]}), "not a JSON object"),
    "a name twice": (forged(b'{"a":{},"a":{}}'), "'a' appears twice"),
    "no object": (forged(b'{"a":1}}'), "not JSON"),
    "deep nesting": (forged(b'{"a":' + b"[" * 200_000), "nested deeper"),
    "deep objects": (forged(b'{"a":' * 200_000), "nested deeper"),
    "NaN": (forged(b'{"a":NaN}'), "NaN is no number"),
    "infinite": (forged(b'{"a":1e999}'), "too large a number"),
    "very many digits": (forged(b'{"a":' + b"9" * 10_000 + b"}"), "damaged"),
    "not UTF-8": (forged(b'{"\xff":1}'), "not valid UTF-8"),
    "half a pair": (forged(b'{"\\ud800":{}}'), "not valid UTF-8"),
    "very many values": (forged(b'{"a":[' + b"{}," * 5_000_000 + b"{}]}"), "more than 4194304 values"),
    "zeros": (bytes(100), "begins with nothing but zeros"),
    "web page": (b"<!DOCTYPE html><html>", "is a web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
}


@pytest.mark.parametrize("case", CASES)
def test_damage_is_told(case: str, folder: Path) -> None:
    content, told = CASES[case]
    path = folder / NAME
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match=told) as caught:
        read_header(path)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert NAME in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert taken < 4 * len(content) + (1 << 20)


def test_an_unknown_type_is_named_with_those_known(folder: Path) -> None:
    message = refusal(folder, forged({"a": entry("F5_NEW")}), UnsupportedModelError)
    assert "'F5_NEW'" in message
    assert "BF16" in message


def test_every_cut_and_changed_byte_is_told_or_read_within_the_file(folder: Path) -> None:
    sound = forged({"a": entry(), "b": entry("BF16", (2, 4), (16, 32))}, bytes(32))
    path = folder / NAME
    draws = random.Random(3)
    contents = [sound[:end] for end in range(1, len(sound))]
    for _ in range(400):
        broken = bytearray(sound)
        broken[draws.randrange(len(sound) - 32)] = draws.randrange(256)
        contents.append(bytes(broken))
    refused = 0
    for content in contents:
        path.write_bytes(content)
        try:
            found = read_header(path)
        except MillstreamError:
            refused += 1
        else:
            assert all(info.offset + info.nbytes <= len(content) for info in found.values())
    assert refused > len(sound)
