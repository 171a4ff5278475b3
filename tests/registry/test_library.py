"""What is listed as usable, and what a name means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from registry.library import Library
from registry.packaged import STARTER


@pytest.fixture
def library(folder: Path) -> Library:
    for name in ("Beta.Q8_0.gguf", "alpha.gguf"):
        (folder / name).write_bytes(b"GGUF")
    return Library(folder)


def make_starter(library: Library, size: int) -> Path:
    path = library.root / STARTER.file
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_models_are_listed_by_name_with_their_size(library: Library) -> None:
    assert [(model.name, model.nbytes) for model in library.list()] == [("alpha", 4), ("Beta.Q8_0", 4)]


def test_nothing_unfinished_is_listed(library: Library) -> None:
    before = library.list()
    (library.root / "half.gguf.part").write_bytes(b"GGUF")
    (library.root / "empty.gguf").write_bytes(b"")
    (library.root / "notes.txt").write_text("x")
    (library.root / ".hidden.gguf").write_bytes(b"GGUF")
    (library.root / ".fetch-1").mkdir()
    (library.root / ".fetch-1" / "tiny.gguf").write_bytes(b"GGUF")
    (library.root / "folder.gguf").mkdir()
    make_starter(library, STARTER.size - 1)
    assert library.list() == before


def test_a_whole_starter_is_listed(library: Library) -> None:
    path = make_starter(library, STARTER.size)
    assert path in [model.path for model in library.list()]


def test_a_library_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert Library(tmp_path / "nowhere").list() == ()


def test_the_name_starter_means_the_starter_even_beside_a_file_of_that_name(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("starter").write_text("something else")
    path = make_starter(library, STARTER.size)
    assert library.resolve("starter") == path


@pytest.mark.parametrize("size", [None, STARTER.size - 1])
def test_a_starter_that_is_not_there_whole_is_told_how_to_get(library: Library, size: int | None) -> None:
    if size is not None:
        make_starter(library, size)
    with pytest.raises(ModelFileError, match=r"python -m registry\.starter"):
        library.resolve("starter")


@pytest.mark.parametrize("name", ["Beta.Q8_0", "Beta.Q8_0.gguf"])
def test_a_name_in_the_library_is_found_with_and_without_its_suffix(library: Library, name: str) -> None:
    assert library.resolve(name) == library.root / "Beta.Q8_0.gguf"


def test_a_path_comes_before_a_name_in_the_library(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alpha.gguf").write_bytes(b"GGUF")
    assert library.resolve("alpha.gguf") == Path("alpha.gguf")
    assert library.resolve(str(tmp_path / "alpha.gguf")) == tmp_path / "alpha.gguf"


@pytest.mark.parametrize("name", ["gamma", "", "no/such.gguf"])
def test_an_unknown_name_is_answered_with_the_known_ones(library: Library, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"Known names: starter, alpha, Beta\.Q8_0\.") as caught:
        library.resolve(name)
    assert f"“{name}”" in str(caught.value)


def test_millstream_home_says_where_the_library_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    assert Library.default().root == folder / "models"


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs by system")
def test_without_it_the_library_lies_where_the_system_keeps_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    assert Library.default().root == folder / "millstream" / "models"
