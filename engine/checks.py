"""What settings and budgets may be. Each refusal names the setting, its value and the values that are allowed."""

from __future__ import annotations

import math

from engine.errors import SettingsError
from engine.types import CACHE_KINDS, EFFORTS, Budgets, Settings
from engine.units import elided

MAX_THREADS = 256
MAX_IO_THREADS = 64


def check_settings(settings: Settings) -> None:
    """Raise SettingsError for a value outside what is allowed."""
    if settings.max_tokens is not None:
        check_count("max_tokens", settings.max_tokens)
    _within("temperature", settings.temperature, 0, 100)
    if settings.top_k < 0:
        raise SettingsError(f"top_k must be 0 (off) or more, not {settings.top_k}.")
    _within("top_p", settings.top_p, 0, 1)
    if settings.top_p == 0:
        raise SettingsError(f"top_p must be more than 0, and 1 to switch it off, not {settings.top_p}.")
    _within("min_p", settings.min_p, 0, 1)
    _within("repetition_penalty", settings.repetition_penalty, 0.01, 100)
    if settings.seed is not None and not 0 <= settings.seed < 1 << 64:
        raise SettingsError(f"seed must be a whole number from 0 to {(1 << 64) - 1}, not {settings.seed}.")
    if any(not stop for stop in settings.stop):
        raise SettingsError("A stop string must not be empty: it would end every reply at once.")
    if settings.effort is not None and settings.effort not in EFFORTS:
        raise SettingsError(
            f"effort must be {', '.join(EFFORTS[:-1])} or {EFFORTS[-1]}, not “{elided(settings.effort)}”."
        )


def check_budgets(budgets: Budgets) -> None:
    """Raise SettingsError for a value outside what is allowed."""
    if budgets.threads is not None and not 1 <= budgets.threads <= MAX_THREADS:
        raise SettingsError(f"threads must be from 1 to {MAX_THREADS}, not {budgets.threads}.")
    if budgets.context is not None:
        check_count("context", budgets.context)
    check_count("chunk", budgets.chunk)
    if budgets.max_patches is not None:
        check_count("max_patches", budgets.max_patches)
    if budgets.ram is not None:
        check_count("ram", budgets.ram)
    if budgets.vram is not None and budgets.vram < 0:
        raise SettingsError(f"vram must be at least 0, not {budgets.vram}.")
    if budgets.io_threads is not None and not 1 <= budgets.io_threads <= MAX_IO_THREADS:
        raise SettingsError(f"io_threads must be from 1 to {MAX_IO_THREADS}, not {budgets.io_threads}.")
    if budgets.block_rows is not None:
        check_count("block_rows", budgets.block_rows)
    if budgets.kv not in CACHE_KINDS:
        raise SettingsError(
            f"kv must be {', '.join(CACHE_KINDS[:-1])} or {CACHE_KINDS[-1]}, not “{elided(budgets.kv)}”."
        )


def check_count(name: str, value: int) -> None:
    """Raise SettingsError where `value` is not at least 1."""
    if value < 1:
        raise SettingsError(f"{name} must be at least 1, not {value}.")


def _within(name: str, value: float, low: float, high: float) -> None:
    if math.isnan(value) or not low <= value <= high:
        raise SettingsError(f"{name} must be from {low} to {high}, not {value}.")
