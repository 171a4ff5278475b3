"""torch, whose builds depend on the machine's graphics card, so that the lock file cannot pin them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from installer.pip import Pip
from installer.report import NoRoom, Report, SetupError

VERSION = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# What pip writes when it has chosen a build for CUDA: at the latest, as the first large download begins. The builds for
# Linux that carry no local version, such as `+cpu`, are built for CUDA.
CUDA = re.compile(
    r"\s*(?:Collecting|Processing|Downloading) (?:.*/)?"
    r"(?:(?:nvidia|cuda)[-_]|triton[-=<>]|torch-[\d.]+(?:-\S*linux\S*\.whl |\+cu))"
)
CUDA_ROOM = 9_000_000_000


def graphics_card() -> str | None:
    """ "NVIDIA", "AMD", or `None` where the system shows no card that PyTorch could compute on."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "NVIDIA"
    if tool := shutil.which("nvidia-smi"):
        try:
            listed = subprocess.run([tool, "-L"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        if listed.returncode == 0 and b"GPU" in listed.stdout:
            return "NVIDIA"
    return "AMD" if Path("/dev/kfd").exists() else None


def sources(card: str | None) -> list[tuple[str, ...]]:
    """pip's arguments for each place to try, best first. The last is whatever index pip is set to use."""
    chosen = os.environ.get("MILLSTREAM_TORCH_INDEX")
    # Elsewhere than on Linux the ordinary index has CPU builds.
    if chosen is None and card != "NVIDIA" and sys.platform == "linux":
        chosen = CPU_INDEX
    first = [("--index-url", chosen, "--timeout", "15", "--retries", "1")] if chosen else []
    return [*first, ()]


class CudaWatch:
    """Follows what pip writes. Says once that CUDA comes, and stops pip where there is no room for it."""

    def __init__(self, pip: Pip, report: Report, card: str | None) -> None:
        self._pip = pip
        self._report = report
        self._card = card
        self._told = False

    def __call__(self, line: str) -> None:
        if self._told or not CUDA.match(line):
            return
        self._told = True
        self._report.note("this torch is built for CUDA, and brings gigabytes of libraries for NVIDIA's cards")
        if self._card != "NVIDIA":
            self._report.note(
                "nothing here can use them. To do without, stop now (Ctrl+C) and set MILLSTREAM_TORCH_INDEX to an "
                f"index of CPU builds that this machine can reach, such as a mirror of {CPU_INDEX}"
            )
        self._pip.environment.check_room(CUDA_ROOM, "PyTorch with CUDA")


def install(pip: Pip, report: Report) -> None:
    """Install torch from the first source that has it, and say so before CUDA comes with it."""
    card = graphics_card()
    report.note(f"graphics card: {card or 'none found'}")
    if card == "AMD" and "MILLSTREAM_TORCH_INDEX" not in os.environ:
        report.note("to compute on it, set MILLSTREAM_TORCH_INDEX to PyTorch's index for your ROCm version")
    requirement = f"torch=={VERSION}"
    watch = CudaWatch(pip, report, card)
    *preferred, last = sources(card)
    for source in preferred:
        try:
            pip.install(*source, requirement, watch=watch)
        except NoRoom:
            raise
        except SetupError:
            report.note(f"{source[1]} could not serve {requirement}; trying the index that pip is set to use")
        else:
            return
    pip.install(*last, requirement, watch=watch)
