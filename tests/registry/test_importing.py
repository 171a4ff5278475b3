"""What is imported is whole and listed, or refused with a sentence; what it is from is left as it was."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import MillstreamError, ModelFileError, StorageError, UnsupportedModelError
from engine.info import describe
from registry.downloads.queue import Downloads
from registry.downloads.record import Wanted
from registry.downloads.verify import origin, verify
from registry.importing import How, import_model
from registry.library import Library
from registry.links import read_link
from registry.place import choose
from registry.progress import Progress
from registry.provenance import read_provenance
from registry.sources.source import RemoteFile
from registry.stores.found import checked
from registry.stores.hub_cache import in_hub_cache
from registry.stores.ollama import in_ollama
from tests import smalldisk
from tests.registry.stores.models import Made, contents, put_in_hub, put_in_ollama, sha256

BOTH: list[How] = ["reference", "copy"]
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("name", ["plain.gguf", "split", "seeing", "checkpoint"])
def test_a_model_is_listed_and_opens_by_its_name(library: Library, store: Path, how: How, name: str) -> None:
    before = contents(store)
    model = import_model(store / name, library, how)
    assert library.list() == (model,)
    assert library.resolve(model.name) == model.path
    info = describe(model.path)
    assert info.file_bytes > 0
    assert info.vision == ("qwen3vl_merger" if name == "seeing" else info.vision)
    assert (model.path.is_relative_to(library.root), model.linked) == (
        (True, False) if how == "copy" else (False, True)
    )
    assert contents(store) == before
    if how == "copy":
        shutil.rmtree(store)
        assert library.list() == (model,)
        assert verify(library.root / model.name) == ()
        assert not list(library.root.glob(".import-*"))


def test_a_copy_is_the_same_bytes_and_progress_never_falls(library: Library, store: Path) -> None:
    steps: list[Progress] = []
    import_model(store / "seeing", library, "copy", steps.append)
    for path in (store / "seeing").iterdir():
        assert (library.root / "tiny" / path.name).read_bytes() == path.read_bytes()
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == steps[-1].total


def test_a_copy_from_the_hubs_cache_knows_where_it_is_from(library: Library, tmp_path: Path, made: Made) -> None:
    put_in_hub(tmp_path / "hub", "labs/Seeing", REVISION, {"Q/tiny.gguf": made.seeing, "mmproj-tiny.gguf": made.tower})
    (found,) = in_hub_cache(tmp_path / "hub").found
    model = import_model(found, library, "copy")
    assert model.name == "labs/Seeing/tiny"
    kept = read_provenance(library.root / model.name)
    assert kept is not None
    assert [(file.source, file.repository, file.revision, file.path, file.sha256) for file in kept.files] == [
        ("hub", "labs/Seeing", REVISION, "Q/tiny.gguf", sha256(made.seeing)),
        ("hub", "labs/Seeing", REVISION, "mmproj-tiny.gguf", sha256(made.tower)),
    ]
    _, wanted = origin(library.root / model.name)
    assert library.root.joinpath(*wanted.steps()) == library.root / model.name  # where a repair puts it
    assert set(wanted.names()) == {"tiny.gguf", "mmproj-tiny.gguf"}
    assert not any(path.is_symlink() for path in library.root.rglob("*"))
    assert describe(model.path).vision


def test_a_model_of_ollamas_gets_a_name_and_keeps_its_tower(library: Library, tmp_path: Path, made: Made) -> None:
    root = tmp_path / "ollama"
    put_in_ollama(root, "registry.ollama.ai/library/tiny/3b", {"model": made.seeing, "projector": made.tower})
    (found,) = in_ollama(root).found
    linked = import_model(found, library, "reference")
    assert linked.name == "tiny-3b"
    assert linked.tower is not None
    assert describe(linked.path, mmproj=linked.tower).vision
    assert library.tower_of(library.resolve(linked.name)) == linked.tower
    assert library.tower_of(tmp_path / "another") is None
    (library.root / "tiny-3b.link.json").unlink()
    copied = import_model(found, library, "copy")
    assert sorted(path.name for path in copied.path.parent.glob("*.gguf")) == ["mmproj-tiny-3b.gguf", "tiny-3b.gguf"]
    assert describe(copied.path).vision


def test_a_blob_that_is_not_what_its_name_says_is_not_imported(library: Library, tmp_path: Path, made: Made) -> None:
    root = tmp_path / "ollama"
    put_in_ollama(root, "registry.ollama.ai/library/tiny/3b", {"model": made.plain})
    (found,) = in_ollama(root).found
    with found.weights.path.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"other")
    with pytest.raises(ModelFileError, match="another sha256"):
        import_model(found, library, "copy")
    assert library.list() == ()
    assert [path.name for path in library.root.iterdir()] == [".import.lock"]


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize("first", BOTH)
def test_the_same_model_is_not_imported_twice(library: Library, store: Path, how: How, first: How) -> None:
    model = import_model(store / "plain.gguf", library, first)
    shutil.copy(store / "plain.gguf", store / "twin.gguf")
    for name in ("plain.gguf", "twin.gguf"):
        with pytest.raises(ModelFileError, match=f"in the library already, as {model.name}"):
            import_model(store / name, library, how)
    assert library.list() == (model,)


def test_a_file_that_lies_in_the_library_is_there_already(library: Library, made: Made) -> None:
    library.root.mkdir()
    shutil.copy(made.plain, library.root / "mine.gguf")
    with pytest.raises(ModelFileError, match="already, as mine"):
        import_model(library.root / "mine.gguf", library, "reference")
    with pytest.raises(ModelFileError, match="already, as mine"):
        import_model(made.plain, library, "copy")


def test_another_model_of_the_same_name_gets_another_name(library: Library, store: Path) -> None:
    first = import_model(store / "plain.gguf", library, "copy")
    shutil.copy(store / "other.gguf", store / "plain.gguf")
    second = import_model(store / "plain.gguf", library, "reference")
    assert (first.name, second.name) == ("plain", "plain (2)")
    assert library.resolve("plain (2)") == store / "plain.gguf"


def test_a_model_is_not_put_inside_another(library: Library, store: Path, tmp_path: Path) -> None:
    import_model(store / "checkpoint", library, "copy")
    inner = store / "x" / "checkpoint"
    inner.mkdir(parents=True)
    shutil.copy(store / "other.gguf", inner / "new.gguf")
    from registry.stores.folders import in_folder

    found = next(model for model in in_folder(store / "x").found)
    assert found.name == "checkpoint/new"
    assert import_model(found, library, "copy").name == "new"


@pytest.mark.parametrize("how", BOTH)
def test_names_that_are_not_safe_are_made_so(library: Library, store: Path, how: How) -> None:
    path = store / 'CON. <山 é>: "x"?.gguf'
    (store / "plain.gguf").rename(path)
    model = import_model(path, library, how)
    assert not set(model.name) & set('<>:"|?*\\')
    assert "山 é" in model.name
    assert library.list() == (model,)


@pytest.mark.parametrize("how", BOTH)
@pytest.mark.parametrize(
    ("name", "words"),
    [("cut.gguf", "cut.gguf"), ("x.bin", "run code"), ("seeing/mmproj-tiny.gguf", "vision tower"), ("gone", "no file")],
)
def test_what_cannot_be_used_is_refused(library: Library, store: Path, how: How, name: str, words: str) -> None:
    (store / "cut.gguf").write_bytes((store / "plain.gguf").read_bytes()[:-500])
    (store / "x.bin").write_bytes(b"PK\3\4")
    with pytest.raises(ModelFileError, match=words):
        import_model(store / name, library, how)
    assert not library.root.exists()


def test_a_tower_that_is_not_named_as_one_is_refused_too(library: Library, store: Path) -> None:
    (store / "seeing" / "mmproj-tiny.gguf").rename(store / "eyes.gguf")
    with pytest.raises(ModelFileError, match="vision tower"):
        import_model(store / "eyes.gguf", library, "reference")


def test_a_model_that_the_engine_does_not_know_is_refused(library: Library, store: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(store / "strange.gguf", "starling")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="starling"):
        import_model(store / "strange.gguf", library, "copy")


def test_a_reference_says_when_its_file_is_gone_or_changed_and_is_never_dropped(library: Library, store: Path) -> None:
    model = import_model(store / "plain.gguf", library, "reference")
    (store / "plain.gguf").rename(store / "away")
    (absent,) = library.absent()
    assert (absent.name, library.list()) == (model.name, ())
    assert "moved or deleted" in absent.problem
    with pytest.raises(ModelFileError, match="moved or deleted"):
        library.resolve("plain")
    (store / "plain.gguf").write_bytes(b"GGUF")
    assert "changed" in library.absent()[0].problem
    (store / "away").replace(store / "plain.gguf")
    assert (library.list(), library.absent()) == ((model,), ())


def test_a_reference_to_bytes_that_are_no_model_any_more_says_so(library: Library, store: Path) -> None:
    import_model(store / "plain.gguf", library, "reference")
    (store / "plain.gguf").write_bytes(bytes((store / "plain.gguf").stat().st_size))
    assert "not a whole model" in library.absent()[0].problem


@smalldisk.needed
def test_a_reference_to_a_drive_that_was_taken_out_says_so(library: Library, tmp_path: Path, made: Made) -> None:
    drive = tmp_path / "drive 山"
    drive.mkdir()
    script = f"""
from pathlib import Path
from registry.importing import import_model
from registry.library import Library
library = Library(Path({str(library.root)!r}))
print(import_model(Path("plain.gguf"), library, "reference").problem, library.absent())
"""
    done = smalldisk.run(
        [sys.executable, "-c", script], drive, "64m", f'cp "{made.plain}" .', {"PYTHONPATH": str(Path.cwd())}
    )
    assert (done.returncode, done.stdout) == (0, " ()\n"), done.stderr
    (absent,) = library.absent()
    assert f"drive that is not there ({drive})" in absent.problem


def test_a_damaged_record_is_passed_over(library: Library, store: Path) -> None:
    import_model(store / "plain.gguf", library, "reference")
    record = library.root / "plain.link.json"
    content = record.read_bytes()
    for damaged in (b"", b"[]", b"{}", content[:-20], content.replace(b'"nbytes": ', b'"nbytes": -')):
        record.write_bytes(damaged)
        assert read_link(record) is None
        assert (library.list(), library.absent()) == ((), ())


def test_a_cancelled_copy_leaves_nothing(library: Library, store: Path) -> None:
    cancel = Cancel()
    with pytest.raises(Cancelled):
        import_model(store / "seeing", library, "copy", lambda progress: cancel.set(), cancel)
    assert [path.name for path in library.root.iterdir()] == [".import.lock"]


def test_a_copy_that_is_killed_is_not_listed_and_is_made_again(library: Library, store: Path) -> None:
    moments = random.Random(4)
    command = [sys.executable, "-m", "tests.registry.killing", "import", str(store / "seeing"), str(library.root)]
    left = 0
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.read(1) == b"."
            time.sleep(moments.uniform(0, 0.15))
            child.kill()
        if library.list():
            shutil.rmtree(library.root / "tiny")  # it was done before
        else:
            left += len(list(library.root.glob(".import-*")))
    assert left
    model = import_model(store / "seeing", library, "copy")
    assert library.list() == (model,)
    assert sorted(path.name for path in library.root.iterdir()) == [".import.lock", "tiny"]


@smalldisk.needed
@pytest.mark.parametrize(
    ("size", "margin", "prepare", "words"),
    [
        ("33000k", 32 << 20, "true", "free there"),
        ("500k", -1 << 30, "true", "is full"),  # as if another program took the room meanwhile
        ("64m", 32 << 20, "mount -o remount,ro .", "can only be read"),
        ("64m", 32 << 20, "true", ""),
    ],
)
def test_a_disk_that_has_no_room_or_is_read_only_is_told(
    tmp_path: Path, made: Made, size: str, margin: int, prepare: str, words: str
) -> None:
    script = f"""
from pathlib import Path
from engine.errors import StorageError
from registry import copying
from registry.importing import import_model
from registry.library import Library
copying.MARGIN = {margin}
library = Library(Path.cwd())
try:
    print(import_model(Path({str(made.seeing)!r}), library, "copy").name)
except StorageError as error:
    print(error)
print([path.name for path in library.root.iterdir() if path.name != ".import.lock"])
"""
    place = tmp_path / "drive é"
    place.mkdir()
    done = smalldisk.run([sys.executable, "-c", script], place, size, prepare, {"PYTHONPATH": str(Path.cwd())})
    assert done.returncode == 0, done.stderr
    said, there = done.stdout.splitlines()
    if words:
        assert words in said
        assert there == "[]"
    else:
        assert (said, there) == ("tiny", "['tiny']")


def test_a_damaged_copy_is_found_out_and_cannot_be_downloaded(library: Library, store: Path) -> None:
    model = import_model(store / "plain.gguf", library, "copy")
    with model.path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    assert verify(model.path.parent) == ("plain.gguf",)
    assert library.list() == ()
    with Downloads(library, []) as downloads, pytest.raises(ModelFileError, match="download it again"):
        downloads.repair(model.path.parent)


def test_nothing_is_downloaded_into_a_library_whose_drive_is_gone(folder: Path) -> None:
    root = folder / "drive" / "models"
    choose(root, folder / "library.json")
    file = RemoteFile("hub", "labs/A", REVISION, "a.gguf", 1)
    with Downloads(Library(root, chosen=True), []) as downloads:
        shutil.rmtree(root)
        with pytest.raises(StorageError, match="Connect the drive"):
            downloads.add(Wanted("a", (file,), file))
    assert not root.exists()


def test_nothing_is_imported_into_a_library_whose_drive_is_gone(folder: Path, made: Made) -> None:
    root = folder / "drive" / "models"
    choose(root, folder / "library.json")
    shutil.rmtree(root.parent)
    root.mkdir(parents=True)  # the empty place at which the drive was mounted
    with pytest.raises(StorageError, match="Connect the drive"):
        import_model(made.plain, Library(root, chosen=True), "copy")
    assert list(root.iterdir()) == []


def test_what_a_store_has_is_refused_for_the_problem_it_was_found_with(library: Library, store: Path) -> None:
    from registry.stores.folders import in_folder

    (store / "plain.gguf").write_bytes(b"GGUF" + bytes(100))
    found = next(checked(model) for model in in_folder(store).found if model.name == "plain")
    with pytest.raises(MillstreamError) as caught:
        import_model(found, library, "copy")
    assert str(caught.value) == found.problem
