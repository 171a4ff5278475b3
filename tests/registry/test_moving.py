"""A library moves whole, and whatever is cut off, nothing is lost and the move can go on."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from engine.cancel import Cancel, Cancelled
from engine.errors import MillstreamError, SettingsError, StorageError
from registry import moving
from registry.importing import import_model
from registry.library import Library
from registry.moving import move_library, survey_move
from registry.moving_files import BEGUN
from registry.place import MARKER, Place, choose, marker_id
from registry.progress import Progress
from tests import smalldisk
from tests.registry.stores.models import Made, contents

OWN = (MARKER, BEGUN, ".import.lock")


@pytest.fixture
def settings(folder: Path) -> Path:
    return folder / "settings" / "library.json"


@pytest.fixture
def full(folder: Path, settings: Path, made: Made) -> Library:
    """A library that was chosen, with models of all kinds in it, a file of two names and a download that rests."""
    root = folder / "old"
    choose(root, settings)
    library = Library(root, chosen=True)
    import_model(made.root / "seeing", library, "copy")
    import_model(made.root / "checkpoint", library, "copy")
    import_model(made.plain, library, "reference")
    (root / "twin").mkdir()
    os.link(root / "tiny" / "mmproj-tiny.gguf", root / "twin" / "mmproj-tiny.gguf")
    item = root / ".downloads" / "0a"
    item.mkdir(parents=True)
    (item / "record.json").write_text("{}")
    (item / "lock").touch()
    return library


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every folder is on a drive of its own, to which nothing can be renamed."""
    monkeypatch.setattr(moving._Move, "_can_rename", lambda self: False)
    return


def models(root: Path) -> dict[str, bytes]:
    return {name: content for name, (content, _) in contents(root).items() if Path(name).name not in (*OWN, "lock")}


def test_on_one_drive_the_folder_gets_another_name(full: Library, folder: Path, settings: Path) -> None:
    before, inode = models(full.root), full.root.stat().st_ino
    moved = move_library(full.root, folder / "new" / "models", settings=settings)
    assert moved == Library(folder / "new" / "models", chosen=True)
    assert (moved.root.stat().st_ino, models(moved.root)) == (inode, before)
    assert Place.read(settings) == Place(moved.root, True)
    assert not full.root.exists()
    assert {model.name for model in moved.list()} == {"tiny", "checkpoint", "plain"}


def test_to_another_drive_everything_is_copied_and_then_deleted(
    full: Library, folder: Path, settings: Path, elsewhere: None
) -> None:
    before, id = models(full.root), marker_id(full.root)
    steps: list[Progress] = []
    moved = move_library(full.root, folder / "new", steps.append, settings=settings)
    assert models(moved.root) == before
    assert marker_id(moved.root) == id
    assert not (moved.root / BEGUN).exists()
    assert not full.root.exists()
    assert Place.read(settings) == Place(moved.root, True)
    assert moved.state() == ("present", "")
    first, second = moved.root / "tiny" / "mmproj-tiny.gguf", moved.root / "twin" / "mmproj-tiny.gguf"
    assert first.samefile(second)
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[-1] == steps[-1].total


def test_links_lead_where_they_led(full: Library, folder: Path, settings: Path, made: Made, elsewhere: None) -> None:
    (full.root / "far.gguf").symlink_to(made.other)
    (full.root / "near.gguf").symlink_to("../beside.gguf")
    shutil.copy(made.plain, folder / "beside.gguf")
    moved = move_library(full.root, folder / "deep" / "er" / "new", settings=settings)
    assert (moved.root / "far.gguf").resolve() == made.other.resolve()
    assert (moved.root / "near.gguf").resolve() == (folder / "beside.gguf").resolve()
    assert not full.root.exists()


@pytest.mark.parametrize("moment", ["copy", "switch", "delete"])
def test_a_move_that_fails_at_any_step_goes_on_when_asked_again(
    full: Library, folder: Path, settings: Path, elsewhere: None, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    before = models(full.root)
    new = folder / "new"
    with monkeypatch.context() as patched:
        if moment == "copy":
            copied = []

            def copy(old: Path, target: Path, *rest: object) -> str:
                if len(copied) == 3:
                    raise StorageError("pulled out")
                copied.append(target)
                return real(old, target, *rest)  # type: ignore[arg-type]

            real = moving.copy_file
            patched.setattr(moving, "copy_file", copy)
        elif moment == "switch":
            patched.setattr(Place, "write", lambda *_: (_ for _ in ()).throw(StorageError("pulled out")))
        else:
            patched.setattr(moving._Move, "_clear", lambda *_: (_ for _ in ()).throw(StorageError("pulled out")))
        with pytest.raises(StorageError, match="pulled out"):
            move_library(full.root, new, settings=settings)
    assert models(full.root) == before
    assert Place.read(settings).models == (new if moment == "delete" else full.root)
    moved = move_library(full.root, new, settings=settings)
    assert models(moved.root) == before
    assert not full.root.exists()


def test_a_file_that_comes_while_the_others_are_copied_comes_along(
    full: Library, folder: Path, settings: Path, elsewhere: None
) -> None:
    late = full.root / "late.txt"

    def progress(step: Progress) -> None:
        late.write_text("late")

    moved = move_library(full.root, folder / "new", progress, settings=settings)
    assert (moved.root / "late.txt").read_text() == "late"


def test_a_cancelled_move_leaves_the_old_library_in_use(
    full: Library, folder: Path, settings: Path, elsewhere: None
) -> None:
    before = models(full.root)
    cancel = Cancel()
    with pytest.raises(Cancelled):
        move_library(full.root, folder / "new", lambda step: cancel.set(), cancel, settings)
    assert (models(full.root), Place.read(settings).models) == (before, full.root)
    assert not Library(folder / "new").list()
    assert models(move_library(full.root, folder / "new", settings=settings).root) == before


def test_a_rename_that_was_cut_off_before_the_settings_were_written_is_known(
    full: Library, folder: Path, settings: Path
) -> None:
    new = folder / "new"
    Place(full.root, True, coming=new).write(settings)
    assert Place.read(settings).models == full.root
    full.root.rename(new)
    assert Place.read(settings) == Place(new, True)
    assert move_library(full.root, new, settings=settings).list()
    assert Place.read(settings) == Place(new, True)


def test_two_libraries_become_one_but_files_that_differ_are_refused(
    full: Library, folder: Path, settings: Path, made: Made
) -> None:
    other = folder / "other"
    choose(other, folder / "unused.json")
    import_model(made.other, Library(other, chosen=True), "copy")
    (other / "tiny").mkdir()
    (other / "tiny" / "tiny.gguf").write_bytes(b"another")
    before = models(full.root), models(other)
    with pytest.raises(StorageError, match="another file"):
        move_library(full.root, other, settings=settings)
    assert models(full.root) == before[0]
    (other / "tiny" / "tiny.gguf").unlink()
    moved = move_library(full.root, other, settings=settings)
    assert {model.name for model in moved.list()} == {"tiny", "checkpoint", "plain", "other"}
    assert not full.root.exists()


def test_targets_that_cannot_be_one_are_refused(full: Library, folder: Path, settings: Path) -> None:
    (folder / "busy").mkdir()
    (folder / "busy" / "letter.txt").write_text("Dear …")
    (folder / "file").write_text("x")
    before = models(full.root)
    for target, words in [
        (full.root, "already"),
        (full.root / "inner", "inside"),
        (full.root / "tiny" / "inner", "inside"),
        (folder / "busy", "not empty"),
        (folder / "file", "is a file"),
    ]:
        with pytest.raises(SettingsError, match=words):
            move_library(full.root, target, settings=settings)
    with pytest.raises(SettingsError, match="nothing was moved"):
        move_library(folder / "busy", folder / "new", settings=settings)
    assert models(full.root) == before
    assert (folder / "busy" / "letter.txt").read_text() == "Dear …"


@pytest.mark.parametrize("name", [".downloads/0a/lock", ".import.lock"])
def test_nothing_moves_while_somebody_writes(full: Library, folder: Path, settings: Path, name: str) -> None:
    with FileLock(full.root / name), pytest.raises(StorageError, match="is running"):
        move_library(full.root, folder / "new", settings=settings)
    assert full.list()
    assert not (folder / "new").exists()
    move_library(full.root, folder / "new", settings=settings)


def test_a_library_whose_drive_is_gone_does_not_move(full: Library, folder: Path, settings: Path) -> None:
    full.root.rename(folder / "away")
    full.root.mkdir()
    state, sentence = full.state()
    assert (state, str(full.root) in sentence) == ("missing", True)
    with pytest.raises(StorageError, match="Connect the drive"):
        move_library(full.root, folder / "new", settings=settings)
    assert not (folder / "new").exists()


def test_before_the_first_model_a_move_only_chooses(
    folder: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("registry.place.usual_folder", lambda: folder / "usual")
    moved = move_library(folder / "usual", folder / "new", settings=settings)
    assert Place.read(settings) == Place(folder / "new", True)
    assert (moved.list(), moved.state()) == ((), ("present", ""))


def test_the_environment_comes_before_the_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    assert Library.default() == Library(folder / "models")
    with pytest.raises(SettingsError, match="MILLSTREAM_HOME"):
        move_library(folder / "models", folder / "new")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder differs by system")
def test_without_it_the_chosen_folder_is_the_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    assert Library.default() == Library(folder / "data" / "millstream" / "models")
    choose(folder / "mine")
    assert Library.default() == Library(folder / "mine", chosen=True)
    (folder / "config" / "millstream" / "library.json").write_text("{")
    assert Library.default().chosen is False


def test_a_move_that_is_killed_loses_nothing_and_goes_on(folder: Path, settings: Path, made: Made) -> None:
    if not smalldisk.available() or not Path("/dev/shm").is_dir():
        pytest.skip("this system has no second drive to move to")
    root = folder / "old"
    choose(root, settings)
    library = Library(root, chosen=True)
    for name in ("seeing", "checkpoint", "split"):
        import_model(made.root / name, library, "copy")
    before = models(root)
    new = Path("/dev/shm") / f"millstream-test-{os.getpid()} 山 é"
    assert root.stat().st_dev != new.parent.stat().st_dev
    command = [sys.executable, "-m", "tests.registry.killing", "move", str(root), str(new), str(settings)]
    moments = random.Random(5)
    deleting = False
    kills = 0
    try:
        while not deleting:
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                for _ in range(moments.randrange(1, 90)):
                    sign = child.stdout.read(1)
                    assert sign
                    if deleting := sign == b"-":
                        break
                child.kill()
            kills += 1
            place = Place.read(settings)
            assert place.models == (new if deleting else root)
            assert models(place.models).items() >= before.items()
        assert kills > 3
        assert place.leaving == root
        assert 0 < len(models(root)) < len(before)
        moved = move_library(root, new, settings=settings)
        assert models(moved.root) == before
        assert not root.exists()
    finally:
        shutil.rmtree(new, ignore_errors=True)


@smalldisk.needed
@pytest.mark.parametrize(
    ("size", "margin", "prepare", "words"),
    [
        ("33000k", 32 << 20, "true", "free there"),
        ("500k", -1 << 30, "true", "is full"),
        ("64m", 32 << 20, "mount -o remount,ro .", "can only be read"),
        ("64m", 32 << 20, "true", ""),
    ],
)
def test_a_drive_without_room_or_that_is_read_only_is_told(
    full: Library, folder: Path, settings: Path, size: str, margin: int, prepare: str, words: str
) -> None:
    before = models(full.root)
    drive = folder / "drive"
    drive.mkdir()
    script = f"""
from pathlib import Path
from engine.errors import StorageError
from registry import copying
from registry.moving import move_library
copying.MARGIN = {margin}
try:
    print(sorted(model.name for model in move_library(
        Path({str(full.root)!r}), Path.cwd(), settings=Path({str(settings)!r})).list()))
except StorageError as error:
    print(error)
"""
    done = smalldisk.run([sys.executable, "-c", script], drive, size, prepare, {"PYTHONPATH": str(Path.cwd())})
    assert done.returncode == 0, done.stderr
    if words:
        assert words in done.stdout
        assert (models(full.root), Place.read(settings).models) == (before, full.root)
    else:
        assert done.stdout == "['checkpoint', 'plain', 'tiny']\n"
        # Outside of the mount, the drive is not there now.
        assert not full.root.exists()
        assert Library(drive, chosen=True).state()[0] == "missing"


@smalldisk.needed
def test_a_library_that_can_only_be_read_says_so(folder: Path) -> None:
    script = """
from pathlib import Path
from registry.library import Library
print(Library(Path.cwd()).state()[0], Library(Path("a/b").absolute()).state()[0])
"""
    for prepare, said in [("mount -o remount,ro .", "unwritable unwritable"), ("true", "present present")]:
        done = smalldisk.run([sys.executable, "-c", script], folder, "1m", prepare, {"PYTHONPATH": str(Path.cwd())})
        assert done.stdout.strip() == said, done.stderr


@smalldisk.needed
def test_two_drives_that_look_like_one_are_copied_between(full: Library, folder: Path, settings: Path) -> None:
    """A folder that is mounted a second time has the same number of its drive, and no rename leads into it."""
    before = models(full.root)
    drive = folder / "drive"
    drive.mkdir()
    script = f"""
import os, sys
from pathlib import Path
from registry import moving
from registry.place import Place
settings = Path({str(settings)!r})
old, new = Path("old").absolute(), Path("twice/new").absolute()
Place(old, True).write(settings)
assert old.stat().st_dev == new.parent.stat().st_dev
copied = []
real = moving.copy_file
moving.copy_file = lambda *rest: (copied.append(rest), real(*rest))[1]
library = moving.move_library(old, new, settings=settings)
print(len(copied) > 3, old.exists(), Place.read(settings).models == new, len(library.list()))
"""
    prepare = f'mkdir twice; mount --bind twice twice; cp -a "{full.root}" old'
    done = smalldisk.run([sys.executable, "-c", script], drive, "64m", prepare, {"PYTHONPATH": str(Path.cwd())})
    assert done.stdout == "True False True 3\n", done.stderr
    assert models(full.root) == before


def test_errors_are_sentences_for_a_person(full: Library, folder: Path, settings: Path) -> None:
    with pytest.raises(MillstreamError) as caught:
        move_library(full.root, full.root / "inner", settings=settings)
    assert str(caught.value).endswith(".")


def test_a_move_is_surveyed_before_it_begins(full: Library, folder: Path, settings: Path, elsewhere: None) -> None:
    before = models(full.root)
    told = survey_move(full.root, folder / "new", settings)
    assert not told.renames and not (folder / "new").exists()
    names = {name: content for name, content in before.items() if not name.startswith("twin/")}
    assert (told.files, told.nbytes) == (len(names), sum(map(len, names.values())))
    assert told.nbytes < told.needed < told.free
    with pytest.raises(SettingsError, match="inside the models folder"):
        survey_move(full.root, full.root / "deeper", settings)


def test_a_move_that_is_cut_off_in_its_copying_is_remembered_until_it_is_done(
    full: Library, folder: Path, settings: Path, elsewhere: None
) -> None:
    cancel = Cancel()
    with pytest.raises(Cancelled):
        move_library(full.root, folder / "new", lambda _: cancel.set(), cancel, settings)
    assert Place.read(settings) == Place(full.root, True, coming=folder / "new")
    move_library(full.root, folder / "new", settings=settings)
    assert Place.read(settings) == Place(folder / "new", True)
