"""Numbers as people read and write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from engine.errors import SettingsError

UNITS: Final = ("kB", "MB", "GB", "TB", "PB")
_FACTORS: Final = (
    {"": 1, "b": 1}
    | {unit.lower(): 1000**power for power, unit in enumerate(UNITS, 1)}
    | {unit[0].lower(): 1000**power for power, unit in enumerate(UNITS, 1)}
    | {f"{unit[0].lower()}ib": 1024**power for power, unit in enumerate(UNITS, 1)}
)
_SIZE: Final = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})\s*([a-z]*)", re.ASCII | re.IGNORECASE)

LARGEST: Final = (1 << 63) - 1
"""As many bytes as a file or an address may count."""
QUOTED: Final = 40
"""Characters of a value that an error repeats."""
NAMED: Final = 200
"""The same of a path or a name."""


def human_bytes(nbytes: int) -> str:
    """Decimal units, as disks and downloads are sold: 98362432 → "98.4 MB"."""
    if nbytes < 1000:
        return f"{nbytes} {plural(nbytes, 'byte')}"
    value = nbytes / 1000
    for unit in UNITS[:-1]:
        if value < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {UNITS[-1]}"


def parse_bytes(text: str) -> int:
    """A size as a person writes it, in whole bytes: "1.5GB" → 1500000000, "512 MiB" → 536870912, "4096" → 4096.

    kB, MB, GB, TB and PB are powers of 1000, and so are K, M, G, T and P; KiB, MiB, GiB, TiB and PiB are powers of
    1024. Small and capital letters are alike. Raises SettingsError for anything else.
    """
    written = _SIZE.fullmatch(text.strip())
    factor = _FACTORS.get(written[2].lower()) if written else None
    if written is None or factor is None:
        raise SettingsError(f'"{elided(text)}" is not a size: write a number and a unit, as in 512MB, 1.5GB or 2GiB.')
    nbytes = int(Fraction(written[1].rstrip(".")) * factor)
    if nbytes > LARGEST:
        raise SettingsError(f"{elided(text.strip())} is more than any machine has.")
    return nbytes


def plural(count: int, noun: str) -> str:
    """The noun as it stands after this number: "token" after 1, else "tokens"."""
    return noun if count == 1 else f"{noun}s"


def elided(text: str, most: int = QUOTED) -> str:
    """At most so many characters of a text, from its beginning and its end."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"
