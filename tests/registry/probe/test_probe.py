"""The whole probe on this machine, and what it does not tell of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from engine.cancel import Cancel, Cancelled
from registry.probe import from_json, probe, probing, report, to_json
from registry.probe.privacy import tidy
from registry.probe.probing import Looks
from registry.probe.tree import Memory, Problem, Storage


def test_this_machine_is_told_of_whole(folder: Path) -> None:
    found = probe(folder, folder / "figures.json", Cancel())
    assert found.system.name and found.processor.logical >= 1 and found.processor.kernels
    assert 0 < found.memory.free <= found.memory.total
    assert found.storage.state == "ready" and found.storage.free
    assert from_json(to_json(found)) == found
    assert list(folder.iterdir()) == []


def test_neither_home_nor_account_is_in_what_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder / "homes" / "alice.b"
    monkeypatch.setattr(probing, "_home", lambda: home)
    (home / "models").mkdir(parents=True)
    found = probe(home / "models", None, Cancel())
    assert found.storage.folder == str(Path("~/models"))
    (folder / "alice.b").mkdir()
    (folder / "alice.b" / "file").write_text("")
    found = probe(folder / "alice.b" / "file" / "models", None, Cancel())
    assert found.storage.state == "unreadable" and len(found.problems) == 1
    for text in (to_json(found), report(found)):
        assert "alice" not in text and "USER" in text


@pytest.mark.parametrize(
    ("said", "home", "tidied"),
    [
        ("/home/al/models", "/home/al", "~/models"),
        ("Cannot open /home/al.", "/home/al", "Cannot open ~."),
        ("/home/alice/models", "/home/al", "/home/alice/models"),
        ("/home/al.old/models", "/home/al", "/home/al.old/models"),
        ("/mnt/home/al/models", "/home/al", "/mnt/home/USER/models"),
        ("/run/media/al/Disk (“/home/al/x”)", "/home/al", "/run/media/USER/Disk (“~/x”)"),
        ("/srv/models", "/", "/srv/models"),
        ("/srv/rooted", "/root", "/srv/rooted"),
    ],
)
def test_a_home_is_taken_out_of_a_text(said: str, home: str, tidied: str) -> None:
    assert tidy(said, PurePosixPath(home)) == tidied


@pytest.mark.parametrize(
    ("said", "tidied"),
    [
        (r"C:\Users\Al B\AppData\Local\models", r"~\AppData\Local\models"),
        (r"c:\users\al b\models", r"~\models"),
        (r"The drive of \\office-nas\share\models is gone.", r"The drive of \\SERVER\share\models is gone."),
        (r"D:\Al B\models", r"D:\USER\models"),
    ],
)
def test_a_home_and_a_server_of_windows_are_taken_out_of_a_text(said: str, tidied: str) -> None:
    assert tidy(said, PureWindowsPath(r"C:\Users\Al B")) == tidied


def test_a_part_that_fails_leaves_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Memory:
        raise OSError(f"no {Path.home()}/x")

    def hangs(*_: object) -> tuple[Storage, tuple[Problem, ...]]:
        never.wait(20)
        raise AssertionError

    never = threading.Event()
    monkeypatch.setattr(probing, "memory", fails)
    monkeypatch.setattr(probing, "storage", hangs)
    monkeypatch.setattr(Looks.__init__, "__defaults__", (1.0,))
    found = probe(folder, None, Cancel())
    never.set()
    assert found.processor.kernels and found.storage.state == "unreadable"
    said = {problem.part: problem.sentence for problem in found.problems}
    assert set(said) == {"memory", "storage"}
    assert "OSError" in said["memory"] and str(Path.home()) not in said["memory"]
    assert "did not answer" in said["storage"]


def test_a_probe_ends_soon_after_it_is_cancelled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, never = Cancel(), threading.Event()

    def hangs(*_: object) -> Memory:
        cancel.set()
        never.wait(20)
        raise AssertionError

    monkeypatch.setattr(probing, "memory", hangs)
    started = time.monotonic()
    with pytest.raises(Cancelled):
        probe(folder, None, cancel)
    never.set()
    assert time.monotonic() - started < 5
