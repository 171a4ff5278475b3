"""The system libraries that Qt loads and does not bring along, and the packages that carry them on Linux."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from installer.report import SetupError


@dataclass(frozen=True)
class Library:
    """A shared library and its package's name on Debian (and Ubuntu) and on Fedora."""

    file: str
    debian: str
    fedora: str


# What the files of PySide6-Essentials name as needed (`readelf -d`), by Qt's platform plugins.
EVERYWHERE = (
    Library("libGL.so.1", "libgl1", "libglvnd-glx"),
    Library("libEGL.so.1", "libegl1", "libglvnd-egl"),
    Library("libX11.so.6", "libx11-6", "libX11"),
    Library("libxkbcommon.so.0", "libxkbcommon0", "libxkbcommon"),
    Library("libdbus-1.so.3", "libdbus-1-3", "dbus-libs"),
    Library("libfontconfig.so.1", "libfontconfig1", "fontconfig"),
    Library("libfreetype.so.6", "libfreetype6", "freetype"),
    Library("libglib-2.0.so.0", "libglib2.0-0", "glib2"),
    Library("libgthread-2.0.so.0", "libglib2.0-0", "glib2"),
    Library("libz.so.1", "zlib1g", "zlib"),
    Library("libzstd.so.1", "libzstd1", "libzstd"),
)
BY_PLATFORM = {
    "offscreen": (),
    "xcb": (
        Library("libX11-xcb.so.1", "libx11-xcb1", "libX11-xcb"),
        Library("libxkbcommon-x11.so.0", "libxkbcommon-x11-0", "libxkbcommon-x11"),
        Library("libxcb.so.1", "libxcb1", "libxcb"),
        Library("libxcb-cursor.so.0", "libxcb-cursor0", "xcb-util-cursor"),
        Library("libxcb-icccm.so.4", "libxcb-icccm4", "xcb-util-wm"),
        Library("libxcb-image.so.0", "libxcb-image0", "xcb-util-image"),
        Library("libxcb-keysyms.so.1", "libxcb-keysyms1", "xcb-util-keysyms"),
        Library("libxcb-randr.so.0", "libxcb-randr0", "libxcb"),
        Library("libxcb-render.so.0", "libxcb-render0", "libxcb"),
        Library("libxcb-render-util.so.0", "libxcb-render-util0", "xcb-util-renderutil"),
        Library("libxcb-shape.so.0", "libxcb-shape0", "libxcb"),
        Library("libxcb-shm.so.0", "libxcb-shm0", "libxcb"),
        Library("libxcb-sync.so.1", "libxcb-sync1", "libxcb"),
        Library("libxcb-util.so.1", "libxcb-util1", "xcb-util"),
        Library("libxcb-xfixes.so.0", "libxcb-xfixes0", "libxcb"),
        Library("libxcb-xkb.so.1", "libxcb-xkb1", "libxcb"),
    ),
    "wayland": (
        Library("libwayland-client.so.0", "libwayland-client0", "libwayland-client"),
        Library("libwayland-cursor.so.0", "libwayland-cursor0", "libwayland-cursor"),
        Library("libwayland-egl.so.1", "libwayland-egl1", "libwayland-egl"),
    ),
}


def has_display() -> bool:
    """Whether a window can open: always elsewhere than on Linux, where a display or Qt's platform is named."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform != "linux" or any(os.environ.get(name) for name in names)


def platforms() -> list[str]:
    """The platform plugins that Qt would try here, in its order."""
    if chosen := os.environ.get("QT_QPA_PLATFORM"):
        return [entry.partition(":")[0] for entry in chosen.split(";")]
    wayland = ["wayland"] if os.environ.get("WAYLAND_DISPLAY") else []
    return [*wayland, "xcb"] if os.environ.get("DISPLAY") else wayland or ["offscreen"]


def missing(platform: str) -> list[Library]:
    """What Qt needs for this platform plugin and the system does not have."""
    if sys.platform != "linux":
        return []
    return [library for library in EVERYWHERE + BY_PLATFORM.get(platform, ()) if not _loads(library.file)]


def missing_here() -> list[Library]:
    """What Qt lacks on this machine; nothing, if any of the platforms that it would try is complete."""
    gaps = [missing(platform) for platform in platforms()]
    return [] if not all(gaps) else gaps[-1]


def remedy(gap: list[Library]) -> SetupError:
    """The sentence that names the libraries and the packages to install."""
    files = ", ".join(library.file for library in gap)
    family = _family()
    if family == "debian":
        command = "sudo apt-get install " + " ".join(dict.fromkeys(library.debian for library in gap))
    elif family == "fedora":
        command = "sudo dnf install " + " ".join(dict.fromkeys(library.fedora for library in gap))
    else:
        command = "the packages of your system that carry them"
    return SetupError(f"Qt needs system libraries that this machine lacks ({files}). Install them: {command}")


def _loads(file: str) -> bool:
    import ctypes  # which a Python that was cut down lacks; `steps.check_python` says so before this is reached

    try:
        ctypes.CDLL(file)
    except OSError:
        return False
    return True


def _family() -> str:
    """ "debian", "fedora" or "", after /etc/os-release."""
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    names = f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".replace('"', "").split()
    return next((family for family in ("debian", "fedora") if family in names), "")
