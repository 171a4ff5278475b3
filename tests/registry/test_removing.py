"""Taking models out of the library, and finding those that are damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine.errors import ModelFileError, StorageError
from registry.importing import import_model
from registry.library import Library, LibraryModel
from registry.provenance import FILE, KeptFile, Provenance
from registry.removing import damaged, remove
from tests.tiny_chat import write_tiny_chat


@pytest.fixture
def library(folder: Path) -> Library:
    return Library(folder / "models")


def downloaded(library: Library, name: str, damaged: bool = False) -> Path:
    """As a download leaves it."""
    folder = library.root / "labs" / "Tiny-GGUF" / name
    folder.mkdir(parents=True)
    content = write_tiny_chat(folder / f"{name}.gguf").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    file = KeptFile(
        f"{name}.gguf", len(content), sha256, "hub", "labs/Tiny-GGUF", "0" * 40, f"{name}.gguf", True, damaged
    )
    Provenance(name, f"{name}.gguf", "mit", "2026-05-31", (file,)).write(folder)
    return folder


def test_a_downloaded_model_goes_with_its_folder_and_those_that_are_empty_then(library: Library) -> None:
    downloaded(library, "One")
    other = downloaded(library, "Two")
    one, _ = library.list()
    remove(library, one)
    assert [model.name for model in library.list()] == ["labs/Tiny-GGUF/Two"]
    assert other.is_dir()
    remove(library, library.list()[0])
    assert library.list() == ()
    assert list(library.root.iterdir()) == []


def test_a_single_file_and_a_checkpoint_s_folder_go_alone(library: Library, folder: Path) -> None:
    library.root.mkdir()
    write_tiny_chat(library.root / "水車.gguf")
    write_tiny_chat(library.root / "other.gguf", seed=1)
    remove(library, next(model for model in library.list() if model.name == "水車"))
    assert [model.name for model in library.list()] == ["other"]


def test_of_a_model_that_lies_elsewhere_only_the_link_goes(library: Library, folder: Path) -> None:
    path = write_tiny_chat(folder / "mine.gguf")
    model = import_model(path, library, "reference")
    remove(library, model)
    assert library.list() == ()
    assert path.exists()


def test_what_is_not_in_the_library_is_not_touched(library: Library, folder: Path) -> None:
    library.root.mkdir()
    path = write_tiny_chat(folder / "mine.gguf")
    with pytest.raises(ModelFileError, match="does not lie in the library"):
        remove(library, LibraryModel("mine", path, path.stat().st_size))
    assert path.exists()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    write_tiny_chat(elsewhere / "mine.gguf")
    (library.root / "labs").symlink_to(elsewhere)
    with pytest.raises(StorageError, match="leads out of the library"):
        remove(library, LibraryModel("labs/mine", library.root / "labs" / "mine.gguf", 1))
    assert (elsewhere / "mine.gguf").exists()


def test_one_that_is_gone_already_is_no_error(library: Library) -> None:
    folder = downloaded(library, "One")
    (model,) = library.list()
    (folder / "One.gguf").unlink()
    (folder / FILE).unlink()
    folder.rmdir()
    remove(library, model)
    assert library.list() == ()


def test_damaged_models_are_told_of_with_their_files(library: Library) -> None:
    downloaded(library, "Sound")
    downloaded(library, "Marked", damaged=True)
    short = downloaded(library, "Short") / "Short.gguf"
    short.write_bytes(short.read_bytes()[:-1])
    found = damaged(library)
    assert [(model.name, model.files) for model in found] == [
        ("labs/Tiny-GGUF/Marked", ("Marked.gguf",)),
        ("labs/Tiny-GGUF/Short", ("Short.gguf",)),
    ]
    assert [model.name for model in library.list()] == ["labs/Tiny-GGUF/Sound"]
    remove(library, found[0])
    assert [model.name for model in damaged(library)] == ["labs/Tiny-GGUF/Short"]
