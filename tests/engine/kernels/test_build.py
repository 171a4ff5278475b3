"""The native kernels compile for the systems that this is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.native.build import FLAGS, SOURCES, TARGETS

NATIVE = Path(__file__).parents[3] / "engine" / "kernels" / "native"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_a_source_compiles_for_other_systems(system: str, source: str, tmp_path: Path) -> None:
    """On x86-64, where their headers declare more names than elsewhere."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[system][0].format(cpu="x86_64")]
    command += [*(flag for flag in FLAGS if flag != "-shared"), "-O0", "-c", str(NATIVE / source)]
    made = subprocess.run([*command, "-o", str(tmp_path / "made.o")], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
