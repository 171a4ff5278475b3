"""The operating system and the versions of what runs on it."""

from __future__ import annotations

import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from engine.cgroups import text
from registry.probe.tree import System


def system(root: Path) -> System:
    if sys.platform == "darwin":
        name, version = "macOS", platform.mac_ver()[0]
    elif sys.platform == "win32":
        name, version = "Windows", f"{platform.release()} ({platform.version()})"
    else:
        name, version = platform.system(), linux_version(root)
    return System(name, version, platform.python_version(), _program())


def linux_version(root: Path) -> str:
    """The distribution as it calls itself in os-release, and the kernel."""
    release = text(root / "proc/sys/kernel/osrelease") or ""
    return ", ".join(part for part in (_distribution(root), f"kernel {release}" if release else "") if part)


def _distribution(root: Path) -> str:
    for file in ("etc/os-release", "usr/lib/os-release"):
        for line in (text(root / file) or "").splitlines():
            key, _, value = line.partition("=")
            if key == "PRETTY_NAME":
                try:
                    return " ".join(shlex.split(value))
                except ValueError:
                    return ""
    return ""


def _program() -> str:
    """What is installed; "0" where the program runs from its source alone."""
    try:
        return metadata.version("millstream")
    except metadata.PackageNotFoundError:
        return "0"
