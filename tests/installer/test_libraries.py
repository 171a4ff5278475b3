"""The system libraries that Qt needs: found missing, and named with their packages."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installer import libraries
from installer.environment import Environment
from installer.libraries import BY_PLATFORM, EVERYWHERE, Library
from installer.report import Report, SetupError
from installer.steps import try_qt
from tests.installer.checkout import call, write

RUNTIME = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "ld-linux", "libgcc_s.", "libstdc++.", "libpython3")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only there Qt leans on the system's packages")


@linux
@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf reads what a library needs")
@pytest.mark.parametrize("platform", ["offscreen", "xcb", "wayland"])
def test_the_table_names_all_that_the_installed_qt_needs(platform: str) -> None:
    spec = importlib.util.find_spec("PySide6")
    assert spec is not None and spec.origin is not None
    qt = Path(spec.origin).parent
    plugins = {
        "offscreen": ["Qt/plugins/platforms/libqoffscreen.so"],
        "xcb": ["Qt/plugins/platforms/libqxcb.so", "Qt/lib/libQt6XcbQpa.so.6"],
        "wayland": ["Qt/plugins/platforms/libqwayland.so", "Qt/lib/libQt6WaylandClient.so.6"],
    }
    modules = [f"Qt{name}.abi3.so" for name in ("Core", "Gui", "Widgets")]
    bundled = [f"Qt/lib/libQt6{name}.so.6" for name in ("Core", "Gui", "Widgets", "DBus", "Svg")]
    needed: set[str] = set()
    for file in [*modules, *bundled, *plugins[platform]]:
        text = subprocess.run(["readelf", "-d", str(qt / file)], check=True, capture_output=True, text=True).stdout
        needed |= {line.split("[")[1].rstrip("]") for line in text.splitlines() if "(NEEDED)" in line}
    system = {
        name for name in needed if not name.startswith((*RUNTIME, "libQt6", "libpyside", "libshiboken", "libicu"))
    }
    assert system
    assert system <= {library.file for library in (*EVERYWHERE, *BY_PLATFORM[platform])}


@linux
def test_a_library_that_does_not_load_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Library("libmillstream-nowhere.so.9", "libnowhere9", "nowhere")
    present = Library("libc.so.6", "libc6", "glibc")
    monkeypatch.setattr(libraries, "EVERYWHERE", (present, absent))
    assert libraries.missing("offscreen") == [absent]


@pytest.mark.parametrize(
    ("family", "command"),
    [
        ("debian", "sudo apt-get install libegl1 libglib2.0-0"),
        ("fedora", "sudo dnf install libglvnd-egl glib2"),
        ("", "the packages of your system"),
    ],
)
def test_the_remedy_names_each_package_once(monkeypatch: pytest.MonkeyPatch, family: str, command: str) -> None:
    monkeypatch.setattr(libraries, "_family", lambda: family)
    gap = [library for library in EVERYWHERE if library.file.startswith(("libEGL", "libglib", "libgthread"))]
    problem = str(libraries.remedy(gap))
    assert command in problem
    assert "libEGL.so.1, libglib-2.0.so.0, libgthread-2.0.so.0" in problem


@linux
@pytest.mark.parametrize(
    ("variables", "platforms"),
    [
        ({}, ["offscreen"]),
        ({"DISPLAY": ":0"}, ["xcb"]),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ["wayland"]),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, ["wayland", "xcb"]),
        ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, ["offscreen"]),
        ({"QT_QPA_PLATFORM": "wayland;xcb:opts"}, ["wayland", "xcb"]),
    ],
)
def test_the_platforms_looked_at_are_those_that_qt_would_try(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], platforms: list[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert libraries.platforms() == platforms
    assert libraries.has_display() == bool(variables)


@linux
def test_one_platform_that_is_complete_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Library("libmillstream-nowhere.so.9", "libnowhere9", "nowhere")
    monkeypatch.setattr(libraries, "EVERYWHERE", ())
    monkeypatch.setattr(libraries, "BY_PLATFORM", {"wayland": (), "xcb": (absent,)})
    monkeypatch.setenv("QT_QPA_PLATFORM", "wayland;xcb")
    assert libraries.missing_here() == []
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    assert libraries.missing_here() == [absent]


@linux
def test_a_missing_library_stops_the_window_and_the_tests_but_not_the_terminal(ready: Environment) -> None:
    """The checkout's own installer is told of a library that no system has."""
    table = ready.root / "installer" / "libraries.py"
    text = table.read_text(encoding="utf-8")
    assert text.count('"libGL.so.1"') == 1
    write(table, text.replace('"libGL.so.1"', '"libmillstream-nowhere.so.9"'))
    for args in (["run"], ["test"]):
        done = call(ready.root, *args, QT_QPA_PLATFORM="offscreen")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "Qt needs system libraries that this machine lacks (libmillstream-nowhere.so.9)" in done.stderr
    assert call(ready.root, "run", "info").returncode == 7
    ready.forget()
    assert "The window could not open here. Qt needs" in call(ready.root, "run", "info").stderr


@linux
def test_a_qt_that_does_not_load_for_another_reason_is_told(
    environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = next(environment.folder.glob("lib/python*/site-packages"))
    write(packages / "PySide6" / "__init__.py", "")
    write(packages / "PySide6" / "QtWidgets.py", "raise ImportError('libnew.so.1: cannot open shared object file')\n")
    with pytest.raises(SetupError, match=r"Qt does not load \(ImportError: libnew\.so\.1: cannot open"):
        try_qt(environment, Report(1), required=True)
    try_qt(environment, Report(1), required=False)
    assert "The window could not open here. Qt does not load (ImportError: libnew.so.1" in capsys.readouterr().err
