"""What every part of the tests shares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from registry.starter import ensure

if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def starter() -> Path:
    """The real starter model, fetched into the person's own library where it is not there yet."""
    return ensure()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder whose name is neither ASCII nor without a space."""
    folder = tmp_path / "山 é"
    folder.mkdir()
    return folder
