"""What is deleted when a model leaves the library, what is not, and what that frees."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from engine.errors import ModelFileError, StorageError
from registry.library import Library
from tests.engine.formats.checkpoints import write_checkpoint
from tests.registry.test_library import keep, write_model
from tests.tiny import tiny


@pytest.fixture
def library(folder: Path) -> Library:
    (folder / "models").mkdir()
    return Library(folder / "models")


def test_a_file_and_a_checkpoints_folder_leave_alone(library: Library) -> None:
    for name in ("alpha.gguf", "beta.gguf"):
        size = len(write_model(library.root / name))
    checkpoint = library.root / "own" / "Gamma-1B"
    checkpoint.mkdir(parents=True)
    write_checkpoint(checkpoint, tiny("llama", vocab_size=64))
    held = sum(path.stat().st_size for path in checkpoint.iterdir())
    assert library.remove("alpha.gguf") == size
    assert library.remove("Gamma-1B") == held
    assert [path.name for path in library.root.iterdir()] == ["beta.gguf"]


def test_a_split_model_is_all_its_parts(library: Library, folder: Path) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(library.root / "big.gguf", "llama", split_max_tensors=1)
    for name in ("a", "b", "c"):
        writer.add_tensor(name, np.zeros(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = list(library.root.iterdir())
    assert len(parts) == 3
    size = sum(path.stat().st_size for path in parts)
    assert library.remove(library.list()[0].name) == size
    assert list(library.root.iterdir()) == []


def test_damaged_models_can_be_removed(library: Library) -> None:
    keep(library.root / "owner" / "name" / "a", "gamma.gguf", damaged=True)
    other = keep(library.root / "owner" / "name" / "b", "gamma.gguf")
    (other.parent / ".millstream.json").write_text("{")
    assert [bool(model.problem) for model in library.known()] == [True, True]
    for name in ("a", "owner/name/b"):
        assert library.remove(name) > 0
    assert list(library.root.iterdir()) == []


def test_a_link_is_removed_and_what_it_leads_to_stays(library: Library, folder: Path) -> None:
    original = folder / "original.gguf"
    write_model(original)
    (folder / "away").mkdir()
    write_model(folder / "away" / "beta.gguf")
    try:
        (library.root / "alpha.gguf").symlink_to(original)
        (library.root / "away").symlink_to(folder / "away", target_is_directory=True)
    except OSError:
        pytest.skip("links are not allowed here")
    library.remove("alpha")
    assert original.exists()
    with pytest.raises(StorageError, match="lies outside the library"):
        library.remove("away/beta")
    assert (folder / "away" / "beta.gguf").exists()


def test_a_file_with_another_name_frees_nothing(library: Library) -> None:
    path = keep(library.root / "owner" / "name" / "a", "gamma.gguf")
    record = (path.parent / ".millstream.json").stat().st_size
    os.link(path, library.root / "other.gguf")
    assert library.remove("a") == record
    assert library.remove("other") == (size := len(write_model(library.root / "alpha.gguf")))
    os.link(library.root / "alpha.gguf", library.root / "second.gguf")
    assert (library.remove("alpha"), library.remove("second")) == (0, size)


def test_what_was_killed_in_the_midst_is_not_listed_and_cleared_away_by_the_next(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        keep(library.root / "owner" / "name" / name, "gamma.gguf")
    with monkeypatch.context() as patch:

        def killed(path: Path, **_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            library.remove("a")
    assert [model.name for model in library.known()] == ["owner/name/b"]
    assert list(library.root.rglob(".removed-*"))
    library.remove("b")
    assert list(library.root.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="whom the system lets do everything")
def test_a_folder_that_cannot_be_written_is_told_and_nothing_is_gone(library: Library) -> None:
    write_model(library.root / "alpha.gguf")
    library.root.chmod(0o555)
    try:
        with pytest.raises(StorageError, match="not open to you"):
            library.remove("alpha")
    finally:
        library.root.chmod(0o755)
    assert [model.name for model in library.list()] == ["alpha"]


@pytest.mark.parametrize("name", ["", "..", "../outside", "/", "a", "x" * 5000])
def test_only_a_models_name_is_taken(library: Library, folder: Path, name: str) -> None:
    write_model(folder / "outside.gguf")
    write_model(library.root / "alpha.gguf")
    with pytest.raises(ModelFileError, match=r"It has: alpha\."):
        library.remove(name)
    assert (folder / "outside.gguf").exists() and (library.root / "alpha.gguf").exists()


def test_of_several_models_the_whole_name_chooses(library: Library) -> None:
    for owner in ("one", "two"):
        keep(library.root / owner / "name" / "a", "gamma.gguf")
    with pytest.raises(ModelFileError, match="several models"):
        library.remove("a")
    library.remove("two/name/a")
    assert [model.name for model in library.list()] == ["one/name/a"]


def test_a_library_on_a_drive_that_is_not_there_is_told_as_that(folder: Path) -> None:
    library = Library(folder / "drive" / "models", chosen=True)
    for call in (library.find, library.remove, library.resolve):
        with pytest.raises(StorageError, match="Connect the drive"):
            call("alpha")
