"""pip inside the environment: what it does, told briefly, and why it failed, told in one sentence."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from installer.environment import Environment
from installer.report import NoRoom, Report, SetupError

# What pip says when the index cannot be reached; in the words of urllib3, the socket module and OpenSSL.
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|SSLError|IncompleteRead|"
    r"RemoteDisconnected|ProtocolError|ConnectionError|Max retries exceeded|Connection (?:refused|reset|aborted)|"
    r"Failed to establish|failed to resolve|name resolution|Network is unreachable|timed out",
    re.IGNORECASE,
)
FULL = re.compile(r"No space left on device|\[Errno 28\]|not enough space|Disk quota exceeded", re.IGNORECASE)
# What engine/kernels/native/build.py raises, and the compiler's first complaint under it.
UNCOMPILED = re.compile(r"BuildError: (.+)(?:\n\s*(\S.*error: .+))?")
MISSING = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)")
DOWNLOADING = re.compile(r"\s*Downloading (\S+) \(([\d.]+ [MG]B)")
UNPACKING = "Installing collected packages"
PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
# Variables that would send pip or Python somewhere other than into the environment.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_HASHES", "PIP_DRY_RUN")


@dataclass(frozen=True)
class Pip:
    """`lock` is the file descriptor of the environment's lock. pip keeps it open, so that where the installer is
    killed and pip lives on, the next call waits for it.
    """

    environment: Environment
    report: Report
    lock: int

    def install(self, *args: str, bar: str = "raw", watch: Callable[[str], None] | None = None) -> None:
        """Run `pip install`. The environment stays marked until it succeeds, or ends before it changed a file.

        `watch` sees every line as pip writes it; what it raises ends pip.
        """
        self.environment.mark()
        output: list[str] = []
        code = -1
        try:
            code = self._run(["install", "--progress-bar", bar, *args], output, watch or (lambda _: None))
        finally:
            if code == 0 or not any(line.startswith(UNPACKING) for line in output):
                self.environment.unmark()
        if code != 0:
            raise failure(output, self.environment)

    def _run(self, args: list[str], output: list[str], watch: Callable[[str], None]) -> int:
        """Append each line to `output`, but for progress; return the exit code."""
        options = ["--no-input", "--disable-pip-version-check", "--retries", "2"]
        with subprocess.Popen(
            [str(self.environment.python), "-m", "pip", *options, *args],
            cwd=self.environment.root,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            pass_fds=() if os.name == "nt" else (self.lock,),
        ) as process:
            assert process.stdout is not None
            download = ""
            try:
                for line in process.stdout:
                    if match := PROGRESS.match(line):
                        self._show(download, int(match[1]), int(match[2]))
                        continue
                    output.append(line)
                    watch(line)
                    download = self._tell(line)
            except BaseException:
                process.kill()
                raise
        return process.returncode

    def _tell(self, line: str) -> str:
        """Tell of a large download or of the unpacking; return what the lines of progress after it are about."""
        if match := DOWNLOADING.match(line):
            download = f"{match[1].split('-')[0]}, {match[2]}"
            self.report.note(f"downloading {download}")
            return download
        if line.startswith(UNPACKING):
            count = line.count(",") + 1
            self.report.note(f"unpacking {count} package{'s' if count > 1 else ''}")
        return ""

    def _show(self, download: str, done: int, total: int) -> None:
        if download and total:
            self.report.progress(f"{download}: {100 * done // total} %")

    def _variables(self) -> dict[str, str]:
        variables = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        # On the environment's own disk, so that one look at its free space counts for all that pip writes.
        temporary = str(self.environment.temporary)
        variables.update(PIP_USER="0", PYTHONIOENCODING="utf-8", TMPDIR=temporary, TEMP=temporary, TMP=temporary)
        return variables


def failure(output: list[str], environment: Environment) -> SetupError:
    """The sentence for a failed run of pip."""
    text = "".join(output)
    if FULL.search(text):
        return NoRoom(
            f"There is no room left on the disk that holds {environment.folder}, or on the one that holds pip's cache: "
            "free some space and start again."
        )
    if "DO NOT MATCH THE HASHES" in text:
        return SetupError(
            "The package index offers a file that is not the one pinned in installer/*.lock, so nothing of it was "
            "installed: check the mirror or proxy that pip is set to use, and start again."
        )
    if UNREACHABLE.search(text):
        return SetupError(
            "The package index could not be reached: check the network connection, the proxy and pip's own settings "
            "(`pip config list`), and start again."
        )
    if match := MISSING.search(text):
        return SetupError(
            f"The package index has no build of {match[1]} for Python {sys.version_info[0]}.{sys.version_info[1]} on "
            f"{platform.system()} {platform.machine()}: start again with another Python, 3.11 being the surest."
        )
    if match := UNCOMPILED.search(text):
        reason = " ".join(part.strip() for part in match.groups() if part).rstrip(".:")
        return SetupError(f"The native kernels could not be compiled: {reason}. Put that right and start again.")
    # Best of all, the exception that ended a build, which pip prints indented; else pip's own last word.
    errors = re.findall(r"^\s+(?:\w+\.)*(\w+(?:Error|Exception): .+)", text, re.MULTILINE) or re.findall(
        r"^(?:ERROR|error): (.+)", text, re.MULTILINE
    )
    reason = (errors or [line.strip() for line in output if line.strip()] or ["it gave no reason"])[-1]
    return SetupError(f"pip failed: {reason.rstrip('.')}. Put that right and start again.")
