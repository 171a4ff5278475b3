"""Sizes, speeds, times and days in words. No Qt."""

from __future__ import annotations

from datetime import date

from app.placement import Translate, as_it_is
from engine.units import human_bytes


def size(nbytes: int) -> str:
    return human_bytes(nbytes)


def of_size(done: int, total: int) -> str:
    """ "1.2 of 2.5 GB", the unit once where it is the same."""
    first, last = human_bytes(done).split(" "), human_bytes(total).split(" ")
    return f"{first[0] if first[1:] == last[1:] else ' '.join(first)} / {' '.join(last)}"


def left(seconds: float, tr: Translate = as_it_is) -> str:
    """As exact as such a thing is."""
    if seconds < 60:
        return tr("less than a minute left")
    minutes = round(seconds / 60)
    if minutes < 60:
        return tr("1 minute left") if minutes == 1 else tr("{n} minutes left").format(n=minutes)
    hours, rest = divmod(minutes, 60)
    return tr("{h} h {m} min left").format(h=hours, m=rest)


def count(number: int) -> str:
    """1234567 → "1.2 M"."""
    for least, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= least:
            return f"{number / least:.1f} {unit}" if number < 10 * least else f"{number / least:.0f} {unit}"
    return str(number)


def day(text: str, today: date, tr: Translate = as_it_is) -> str:
    """A day, "2026-05-31", as somebody speaks of it; the text itself where it is none."""
    try:
        then = date.fromisoformat(text)
    except ValueError:
        return text
    days = (today - then).days
    if days == 0:
        return tr("today")
    if days == 1:
        return tr("yesterday")
    if 1 < days < 30:
        return tr("{n} days ago").format(n=days)
    return text
