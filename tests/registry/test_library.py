"""What is listed as usable, and what a name means."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import gguf
import pytest

from engine.errors import ModelFileError
from engine.units import elided
from registry.library import Library
from registry.packaged import STARTER
from registry.provenance import KeptFile, Provenance
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
    with pytest.raises(ModelFileError, match=r"millstream pull starter"):
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
    with pytest.raises(ModelFileError, match=r"millstream pull starter"):
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


def keep(folder: Path, file: str, *, damaged: bool = False, nbytes: int | None = None) -> Path:
    """A model in a folder that says where it is from: → its file."""
    folder.mkdir(parents=True)
    content = write_model(folder / file)
    digest = hashlib.sha256(content).hexdigest()
    size = len(content) if nbytes is None else nbytes
    entry = KeptFile(file, size, digest, "hub", "owner/name", "0" * 40, file, True, damaged)
    Provenance(folder.name, file, "mit", "2026-05-31", (entry,)).write(folder)
    return folder / file


def test_a_downloaded_model_is_named_by_its_folder_and_found_by_the_last_step(library: Library) -> None:
    path = keep(library.root / "owner" / "name" / "Gamma-Q4", "gamma.gguf")
    assert ("owner/name/Gamma-Q4", path) in [(model.name, model.path) for model in library.list()]
    for name in ("owner/name/Gamma-Q4", "Gamma-Q4", str(path.parent), str(path)):
        assert library.resolve(name) == path


def test_files_in_folders_of_a_persons_own_are_listed_by_their_path(library: Library) -> None:
    (library.root / "owner" / "name").mkdir(parents=True)
    write_model(library.root / "owner" / "name" / "gamma.gguf")
    write_model(library.root / "owner" / "name" / ".hidden.gguf")
    assert [model.name for model in library.list()] == ["alpha", "Beta.Q8_0", "owner/name/gamma"]
    assert library.resolve("owner/name/gamma") == library.root / "owner" / "name" / "gamma.gguf"


def test_a_damaged_or_incomplete_download_is_not_listed(library: Library) -> None:
    before = library.list()
    path = keep(library.root / "owner" / "name" / "a", "gamma.gguf", damaged=True)
    keep(library.root / "owner" / "name" / "b", "gamma.gguf", nbytes=1000)
    other = keep(library.root / "owner" / "name" / "c", "gamma.gguf")
    (other.parent / ".millstream.json").write_text('{"name": "c"}')
    assert library.list() == before
    with pytest.raises(ModelFileError, match="damaged"):
        library.resolve(str(path))


@pytest.mark.parametrize("change", ['"../../alpha.gguf"', '"/alpha.gguf"', '"a\\\\b"', "3", "null"])
def test_a_record_whose_names_lead_out_of_its_folder_is_not_believed(library: Library, change: str) -> None:
    before = library.list()
    path = keep(library.root / "owner" / "name" / "a", "gamma.gguf")
    record = path.parent / ".millstream.json"
    record.write_text(record.read_text().replace('"gamma.gguf"', change))
    assert library.list() == before


def test_what_a_model_sees_with_is_no_model(library: Library) -> None:
    before = library.list()
    writer = gguf.GGUFWriter(library.root / "mmproj-alpha.gguf", "clip")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert library.list() == before
