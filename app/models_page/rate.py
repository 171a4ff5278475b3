"""How many bytes a second downloads may take: chosen from a few, and kept beside the settings."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from app.models_page.filter_bar import MenuChip
from app.translated import translated

RATES: Final = (None, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000)
"""Bytes a second for all downloads together; None is without a limit."""


class KeptRate:
    """A small record, which may be deleted. It belongs off the window's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int | None:
        """No limit where the record is absent, damaged or of none of the `RATES`."""
        from registry.saved import read_json

        try:
            rate = read_json(self._path).count("bytes_a_second")
        except (OSError, ValueError):
            return None
        return rate if rate in RATES else None

    def write(self, rate: int | None) -> None:
        """A disk that refuses makes it forget: at the next start there is no limit."""
        from registry.saved import write_json

        with contextlib.suppress(OSError):
            if rate is None:
                self._path.unlink(missing_ok=True)
            else:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._path, {"bytes_a_second": rate})


class RateChip(MenuChip):
    def __init__(self) -> None:
        tr = translated
        megabytes = [rate // 1_000_000 for rate in RATES if rate is not None]
        limits = (tr("At most {n} MB/s").format(n=n) for n in megabytes)
        super().__init__(tr("Speed of downloads"), (tr("No speed limit"), *limits))
        self.setToolTip(tr("What all downloads together may take of the connection"))

    @property
    def rate(self) -> int | None:
        return RATES[self.number]

    def show_rate(self, rate: int | None) -> None:
        """One of the `RATES`."""
        self.show_number(RATES.index(rate))
