"""What is listed as usable, and what a name means."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import gguf
import pytest

from engine.errors import ModelFileError
from engine.units import elided
from registry.library import Library
from registry.packaged import STARTER
from tests.engine.formats.checkpoints import write_checkpoint
from tests.tiny import tiny


def write_model(path: Path) -> bytes:
    """A sound file without tensors: → its bytes."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def library(folder: Path) -> Library:
    for name in ("Beta.Q8_0.gguf", "alpha.gguf"):
        write_model(folder / name)
    return Library(folder)


def make_starter(library: Library, size: int) -> Path:
    path = library.root / STARTER.file
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_models_are_listed_by_name_with_their_size(library: Library) -> None:
    size = (library.root / "alpha.gguf").stat().st_size
    assert [(model.name, model.nbytes) for model in library.list()] == [("alpha", size), ("Beta.Q8_0", size)]


def test_nothing_unfinished_is_listed(library: Library) -> None:
    before = library.list()
    content = write_model(library.root / ".hidden.gguf")
    (library.root / "half.gguf.part").write_bytes(content)
    (library.root / "cut.gguf").write_bytes(content[:40])
    (library.root / "noise.gguf").write_bytes(bytes(range(256)) * 400)
    (library.root / "empty.gguf").write_bytes(b"")
    (library.root / "notes.txt").write_text("x")
    (library.root / ".fetch-1").mkdir()
    (library.root / ".fetch-1" / "tiny.gguf").write_bytes(content)
    (library.root / "folder.gguf").mkdir()
    make_starter(library, STARTER.size - 1)
    assert library.list() == before


def test_a_checkpoint_is_listed_by_its_folder_and_an_incomplete_one_is_not(library: Library) -> None:
    before = {model.name for model in library.list()}
    path = library.root / "Gamma-1B"
    path.mkdir()
    write_checkpoint(path, tiny("llama", vocab_size=64), shard="60KB")
    weights = list(path.glob("*.safetensors"))
    assert len(weights) > 1
    assert [(model.name, model.path, model.nbytes) for model in library.list() if model.name not in before] == [
        ("Gamma-1B", path, sum(file.stat().st_size for file in weights))
    ]
    assert library.resolve("Gamma-1B") == path
    shutil.copytree(path, library.root / ".fetch-2")
    with weights[0].open("r+b") as file:
        file.truncate(weights[0].stat().st_size - 1)
    assert {model.name for model in library.list()} == before


def test_a_file_beside_a_folder_of_its_name_keeps_its_suffix(library: Library) -> None:
    (library.root / "alpha").mkdir()
    assert [model.name for model in library.list()] == ["alpha.gguf", "Beta.Q8_0"]
    assert all(library.resolve(model.name) == model.path for model in library.list())


def test_a_whole_starter_is_listed_and_a_damaged_one_of_the_right_size_is_not(library: Library, starter: Path) -> None:
    path = library.root / STARTER.file
    shutil.copy(starter, path)
    assert path in [model.path for model in library.list()]
    with path.open("r+b") as file:
        file.seek(60_000_000)
        byte = file.read(1)
        file.seek(60_000_000)
        file.write(bytes([byte[0] ^ 1]))
    assert path not in [model.path for model in library.list()]
    with pytest.raises(ModelFileError, match=r"python -m registry\.starter"):
        library.resolve("starter")


def test_a_library_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert Library(tmp_path / "nowhere").list() == ()


def test_the_name_starter_means_the_starter_even_beside_a_file_of_that_name(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("starter").write_text("something else")
    path = library.root / STARTER.file
    shutil.copy(starter, path)
    assert library.resolve("starter") == path


@pytest.mark.parametrize("size", [None, STARTER.size - 1, STARTER.size])
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
    write_model(Path("alpha.gguf"))
    assert library.resolve("alpha.gguf") == Path("alpha.gguf")
    assert library.resolve(str(tmp_path / "alpha.gguf")) == tmp_path / "alpha.gguf"


@pytest.mark.parametrize("name", ["gamma", "", "no/such.gguf", "x" * 5000, "~nobody-of-this-name/x", "a\0b"])
def test_an_unknown_name_is_answered_with_the_known_ones(library: Library, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"Known names: starter, alpha, Beta\.Q8_0\.") as caught:
        library.resolve(name)
    assert f"“{elided(name, 200)}”" in str(caught.value)


def test_a_link_that_leads_nowhere_is_told_as_that(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        for link, target in (("turn", "round"), ("round", "turn"), ("lost.gguf", "nowhere.gguf"), ("alpha", "nowhere")):
            Path(link).symlink_to(target)
        (library.root / "gone.gguf").symlink_to("nowhere.gguf")
    except OSError:
        pytest.skip("links are not allowed here")
    for name in ("turn", "turn/model.gguf"):
        with pytest.raises(ModelFileError, match=rf"^“{name}” is reached by links that lead back to themselves\.$"):
            library.resolve(name)
    for name in ("lost.gguf", "gone"):
        with pytest.raises(ModelFileError, match=rf"{name}\S*” is a link to something that is not there\.$"):
            library.resolve(name)
    assert library.resolve("alpha") == library.root / "alpha.gguf"


def test_millstream_home_says_where_the_library_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    assert Library.default().root == folder / "models"


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs by system")
def test_without_it_the_library_lies_where_the_system_keeps_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    assert Library.default().root == folder / "millstream" / "models"
