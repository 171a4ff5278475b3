"""The virtual environment beside the checkout: is it whole, is it current, and how to make it anew.

Two files inside it say so. `millstream.json`, the stamp, is written last and names what the environment was made from.
`installing` stands there while something is being installed: found by a later call, it means that the earlier one
was killed half-way, when no installer can tell which packages are whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from installer.report import NoRoom, Report, SetupError

STAMP = "millstream.json"
MARK = "installing"
LOCK = "millstream.lock"
NATIVE = Path("engine", "kernels", "native")


class Environment:
    """`.venv` in the checkout `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / ".venv"
        self.temporary = self.folder / "tmp"
        self.python = self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self._stamp = self.folder / STAMP
        self._mark = self.folder / MARK

    def digest(self) -> str:
        """Of everything that the environment is made from."""
        sources = [self.root / "pyproject.toml"]
        sources += sorted((self.root / "installer").glob("*.lock"))
        sources += sorted(
            path
            for path in (self.root / NATIVE).glob("**/*")
            if path.suffix in {".c", ".h"} or path.name in {"build.py", "wheel.py"}
        )
        digest = hashlib.sha256(f"{self.root}\n{_version()}\n".encode())
        for path in sources:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(self.root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def satisfies(self, kind: str) -> bool:
        """Whether nothing is left to do for `kind` ("run" or "test"; a test environment can also run)."""
        try:
            stamp = json.loads(self._stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return (
            isinstance(stamp, dict)
            and stamp.get("kind") in {kind, "test"}
            and stamp.get("digest") == self.digest()
            and self._starts()
            and self._has_libraries()
        )

    def sound(self) -> bool:
        """Whether packages can be added to what is there, or it has to be made anew."""
        return not self._mark.exists() and self._starts() and self._call("-m", "pip", "--version") is not None

    def forget(self) -> None:
        """Take the stamp away, before anything changes."""
        self._stamp.unlink(missing_ok=True)

    def remember(self, kind: str, digest: str) -> None:
        """Write the stamp, last of all. `digest` was taken first, so that a change in between is not missed."""
        draft = self._stamp.with_suffix(".tmp")
        draft.write_text(json.dumps({"kind": kind, "digest": digest}), encoding="utf-8")
        draft.replace(self._stamp)

    def make(self) -> None:
        """Make it anew, whatever was there."""
        for entry in list(self.folder.iterdir()):
            if entry.name == LOCK or entry == self.temporary:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.mark()
        done = subprocess.run(
            [sys.executable, "-I", "-m", "venv", str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            last = (done.stdout.strip().splitlines() or ["no reason given"])[-1]
            raise SetupError(
                f"Python's own venv module could not make {self.folder}: {last}. Check the free space there and that "
                f"{sys.executable} is whole, and start again."
            )

    def mark(self) -> None:
        """Note that an installation is under way."""
        self._mark.touch()

    def unmark(self) -> None:
        """Note that it has ended, and every package is whole."""
        self._mark.unlink(missing_ok=True)

    def check_room(self, need: int, what: str) -> None:
        """Raise `NoRoom` where fewer than `need` bytes are free on the environment's disk."""
        free = shutil.disk_usage(self.root).free
        if free < need:
            raise NoRoom(
                f"{what} needs {need / 1e9:.1f} GB on the disk that holds {self.root}, and {free / 1e9:.1f} GB are "
                "free: free some space and start again."
            )

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for temporary files on the environment's own disk, emptied before and after."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        try:
            yield self.temporary
        finally:
            shutil.rmtree(self.temporary, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self, report: Report) -> Iterator[int]:
        """One set-up at a time. Yields the lock's file descriptor, which a child process may keep open."""
        self.folder.mkdir(exist_ok=True)
        descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _try_lock(descriptor):
                report.say("Another set-up of this checkout is at work; waiting for it to end.")
                while not _try_lock(descriptor):
                    time.sleep(0.2)
            yield descriptor
        finally:
            os.close(descriptor)

    def has_package(self, name: str, version: str) -> bool:
        """Whether the package is installed, in this version or a local build of it such as `2.13.0+cpu`."""
        pattern = f"{name}-{version}*.dist-info/RECORD"
        return any(
            record.parent.name.removesuffix(".dist-info").partition("-")[2].partition("+")[0] == version
            for packages in ("lib/python*/site-packages", "Lib/site-packages")
            for record in self.folder.glob(f"{packages}/{pattern}")
        )

    def _has_libraries(self) -> bool:
        """The kernels that were compiled lie in the source tree, where a cleaning may have taken them away."""
        return any((self.root / NATIVE / "lib").glob("*"))

    def _starts(self) -> bool:
        """A system upgrade can take away the Python that the environment points to, or put another in its place."""
        return self._call("-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])") == _version()

    def _call(self, *args: str) -> str | None:
        try:
            done = subprocess.run(
                [str(self.python), "-I", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None


def _version() -> str:
    return "{}.{}".format(*sys.version_info)


def _try_lock(descriptor: int) -> bool:
    """Take the lock if it is free. The system gives it back when the last holder of the file ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
