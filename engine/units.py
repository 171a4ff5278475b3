"""Numbers as people read them."""

from __future__ import annotations


def human_bytes(nbytes: int) -> str:
    """Decimal units, as disks and downloads are sold: 98362432 → "98.4 MB"."""
    if nbytes < 1000:
        return f"{nbytes} bytes"
    value = nbytes / 1000
    for unit in ("kB", "MB", "GB"):
        if value < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
