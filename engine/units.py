"""Numbers as people read and write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from engine.errors import SettingsError

UNITS: Final = ("kB", "MB", "GB", "TB")
_FACTORS: Final = (
    {"": 1, "b": 1}
    | {unit.lower(): 1000**power for power, unit in enumerate(UNITS, 1)}
    | {f"{unit[0].lower()}ib": 1024**power for power, unit in enumerate(UNITS, 1)}
)
_SIZE: Final = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})\s*([a-z]*)", re.ASCII | re.IGNORECASE)

LARGEST: Final = (1 << 63) - 1
"""As many bytes as a file or an address may count."""
_QUOTED: Final = 40


def human_bytes(nbytes: int) -> str:
    """Decimal units, as disks and downloads are sold: 98362432 → "98.4 MB"."""
    if nbytes < 1000:
        return f"{nbytes} bytes"
    value = nbytes / 1000
    for unit in UNITS[:-1]:
        if value < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {UNITS[-1]}"


def parse_bytes(text: str) -> int:
    """A size as a person writes it, in whole bytes: "1.5GB" → 1500000000, "512 MiB" → 536870912, "4096" → 4096.

    kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB powers of 1024, small or capital letters alike. Raises
    SettingsError for anything else.
    """
    written = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(written[2].lower()) if written else None
    if written is None or factor is None:
        quoted = f"{text[:_QUOTED]}…" if len(text) > _QUOTED else text
        raise SettingsError(f'"{quoted}" is not a size: write a number and a unit, as in 512MB, 1.5GB or 2GiB.')
    nbytes = int(Fraction(written[1].rstrip(".")) * factor)
    if nbytes > LARGEST:
        raise SettingsError(f"{text.strip()[:_QUOTED]} is more than any machine has.")
    return nbytes
