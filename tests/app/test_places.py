from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.places import log_file, measurements_file, settings_file


@pytest.mark.parametrize("place", [settings_file, log_file, measurements_file])
def test_everything_is_kept_under_the_home_that_is_named(
    place: Callable[[], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    assert folder in place().parents
    monkeypatch.delenv("MILLSTREAM_HOME")
    assert folder not in place().parents and "millstream" in str(place())


def test_measurements_are_kept_where_the_system_may_clear_them(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert measurements_file().parent != settings_file().parent
