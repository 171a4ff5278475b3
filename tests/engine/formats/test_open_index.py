"""What is said of files that are no models."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.errors import ModelFileError
from engine.formats import open_index


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_index(path)
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "山 é" / "gone.gguf") in refusal(tmp_path / "山 é" / "gone.gguf")


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_an_empty_file_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    assert "is empty" in refusal(tmp_path / "m.gguf")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_pipe_is_refused_without_waiting_on_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert "not an ordinary file" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["x\0y.gguf", "x" * 5000])
def test_an_impossible_path_is_refused(name: str, tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="needs a file that may not be read")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.gguf").chmod(0)
    assert "cannot be read" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"GG", "only 2 bytes"),
        (b"GGUF", "cut short"),
        (b"GGUF\3\0\0\0" + bytes(15), "cut short"),
        (bytes(4096), "zeros"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"\n <html lang=en>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS"),
        (b'{"architectures": ["LlamaForCausalLM"]}', "choose the folder in which it lies"),
        (b"lmgg" + bytes(100), "older than GGUF"),
        (b"just some text that is long enough", "does not begin as any known"),
    ],
)
def test_what_a_file_looks_like_is_said(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    message = refusal(path)
    assert told in message
    assert "m.gguf" in message


def test_a_zip_archive_is_recognised(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.bin", "w") as archive:
        archive.writestr("data.pkl", b"x")
    assert "ZIP archive" in refusal(tmp_path / "model.bin")


def test_a_safetensors_file_is_recognised(tmp_path: Path) -> None:
    save_file({"a": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    assert "safetensors" in refusal(tmp_path / "model.safetensors")
