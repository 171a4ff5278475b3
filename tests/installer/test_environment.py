"""When an environment is taken as it is, completed, or made anew."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from installer.environment import LOCK, STAMP, Environment
from installer.report import NoRoom, Report
from tests.installer.checkout import ROOT, write


def test_nothing_is_left_to_do_after_the_stamp(environment: Environment) -> None:
    assert not environment.satisfies("run")
    environment.remember("run", environment.digest())
    assert environment.satisfies("run")


def test_a_test_environment_can_run_but_not_the_other_way_round(environment: Environment) -> None:
    environment.remember("test", environment.digest())
    assert environment.satisfies("run")
    environment.remember("run", environment.digest())
    assert not environment.satisfies("test")


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "engine/kernels/native/wheel.py",
        "installer/run.lock",
        "installer/test.lock",
        "installer/pip.lock",
        "engine/kernels/native/linear.c",
        "engine/kernels/native/build.py",
        "engine/kernels/native/new.h",
    ],
)
def test_whatever_it_is_made_from_makes_it_stale(ready: Environment, name: str) -> None:
    with (ready.root / name).open("a") as file:
        file.write("\n# changed\n")
    assert not ready.satisfies("run")


def test_what_it_is_not_made_from_leaves_it_alone(ready: Environment) -> None:
    write(ready.root / "engine" / "engine.py", "x = 1\n")
    assert ready.satisfies("run")


def spoil_json(environment: Environment) -> None:
    (environment.folder / STAMP).write_text("[]")


def cut_stamp(environment: Environment) -> None:
    (environment.folder / STAMP).write_text('{"kind": "ru')


def forget(environment: Environment) -> None:
    environment.forget()


def clean_libraries(environment: Environment) -> None:
    shutil.rmtree(environment.root / "engine" / "kernels" / "native" / "lib")


def remove_python(environment: Environment) -> None:
    environment.python.unlink()


def break_python(environment: Environment) -> None:
    environment.python.unlink()
    environment.python.write_text("#!/nowhere/python\n")
    environment.python.chmod(0o755)


def other_python(environment: Environment) -> None:
    """A system upgrade has put another version where the environment points to."""
    environment.python.unlink()
    environment.python.write_text("#!/bin/sh\necho 3.9\n")
    environment.python.chmod(0o755)


@pytest.mark.parametrize(
    "harm", [spoil_json, cut_stamp, forget, clean_libraries, remove_python, break_python, other_python]
)
def test_harm_of_any_kind_is_seen(ready: Environment, harm: Callable[[Environment], None]) -> None:
    harm(ready)
    assert not ready.satisfies("run")


@pytest.mark.parametrize("harm", [Environment.mark, remove_python, break_python, other_python])
def test_what_cannot_be_completed_is_not_sound(environment: Environment, harm: Callable[[Environment], None]) -> None:
    assert environment.sound()
    harm(environment)
    assert not environment.sound()


def test_an_environment_without_pip_is_not_sound(environment: Environment) -> None:
    for path in environment.folder.glob("lib/python*/site-packages/pip*"):
        path.unlink()
    assert not environment.sound()


def test_a_moved_checkout_is_set_up_again(ready: Environment, tmp_path: Path) -> None:
    """The package is installed from where the checkout was."""
    moved = tmp_path / "moved"
    ready.root.rename(moved)
    assert not Environment(moved).satisfies("run")


def test_making_it_anew_sweeps_out_the_wreck_and_stays_marked(environment: Environment) -> None:
    with environment.locked(Report(1)):
        write(environment.folder / "lib" / "wreck.py", "")
        (environment.folder / "link").symlink_to(ROOT)
        break_python(environment)
        environment.make()
    assert not (environment.folder / "lib" / "wreck.py").exists()
    assert not (environment.folder / "link").is_symlink()
    assert (environment.folder / LOCK).exists()
    assert not environment.sound()
    environment.unmark()
    assert environment.sound()


def test_a_second_set_up_waits_for_the_first_and_says_so(environment: Environment) -> None:
    order: list[str] = []
    said = threading.Event()

    class Listening(Report):
        def say(self, text: str) -> None:
            if "waiting" in text:
                said.set()

    def second() -> None:
        with Environment(environment.root).locked(Listening(1)):
            order.append("second")

    thread = threading.Thread(target=second)
    with environment.locked(Report(1)):
        thread.start()
        assert said.wait(30)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.skipif(sys.platform == "win32", reason="pip keeps the lock on POSIX")
def test_a_child_that_outlives_the_installer_holds_the_lock(environment: Environment) -> None:
    """Where the installer is killed, pip may still be writing."""
    report = Report(1)
    with environment.locked(report) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    taken = threading.Event()

    def take() -> None:
        with environment.locked(report):
            taken.set()

    thread = threading.Thread(target=take)
    thread.start()
    assert not taken.wait(0.5)
    child.communicate(b"\n")
    thread.join()
    assert taken.is_set()


def test_too_little_room_is_told_with_what_is_needed_and_what_is_free(environment: Environment) -> None:
    with pytest.raises(NoRoom, match=r"^PyTorch needs 1000000\.0 GB on the disk that holds .*, and [\d.]+ GB are free"):
        environment.check_room(10**15, "PyTorch")


def test_an_installed_version_is_found_with_and_without_a_local_build_tag(environment: Environment) -> None:
    packages = next(environment.folder.glob("lib/python*/site-packages"))
    for name in ("torch-2.13.0+cpu", "numpy-2.4.6", "half-1.0"):
        write(packages / f"{name}.dist-info" / "METADATA", "")
    for name in ("torch-2.13.0+cpu", "numpy-2.4.6"):
        write(packages / f"{name}.dist-info" / "RECORD", "")
    assert environment.has_package("torch", "2.13.0")
    assert environment.has_package("numpy", "2.4.6")
    assert not environment.has_package("numpy", "2.4")
    assert not environment.has_package("half", "1.0"), "without its record the installation did not end"


def test_the_stamp_is_whole_or_not_there(environment: Environment) -> None:
    environment.remember("run", environment.digest())
    assert json.loads((environment.folder / STAMP).read_text())["kind"] == "run"
    assert [path.name for path in environment.folder.glob("*.tmp")] == []
