"""The battery, by which a laptop is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

from registry.probe.tree import Battery


def battery(sensor: Callable[[], Any] | None = None) -> Battery | None:
    """`None` where there is none, or where the system tells nothing of one. `sensor` answers as psutil's does."""
    sensor = sensor or getattr(psutil, "sensors_battery", None)
    told = sensor() if sensor else None
    if told is None:
        return None
    return Battery(
        max(0, min(round(told.percent), 100)), None if told.power_plugged is None else bool(told.power_plugged)
    )
