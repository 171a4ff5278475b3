from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.checks import check_budgets, check_settings
from engine.errors import SettingsError
from engine.types import CACHE_KINDS, Budgets, Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", -0.1),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.5),
        ("min_p", 1.5),
        ("min_p", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("seed", -1),
        ("seed", 1 << 64),
        ("effort", "huge"),
    ],
)
def test_a_setting_outside_what_is_allowed_is_refused_by_name_and_value(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} must be .*, not [“]?{value}[”]?\.$"):
        check_settings(replace(Settings(), **{name: value}))


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(SettingsError, match="stop string"):
        check_settings(Settings(stop=("END", "")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", 0),
        ("threads", -3),
        ("threads", 10**9),
        ("context", 0),
        ("chunk", 0),
        ("kv", "q3"),
        ("vram", -1),
        ("ram", 0),
        ("ram", -5),
        ("io_threads", 0),
        ("io_threads", 65),
        ("block_rows", 0),
    ],
)
def test_a_budget_outside_what_is_allowed_is_refused_by_name_and_value(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{name} must be .*, not [“]?{value}[”]?\.$"):
        check_budgets(Budgets(**{name: value}))


def test_what_is_at_the_edge_is_allowed() -> None:
    check_settings(Settings(max_tokens=1, temperature=0, top_k=0, top_p=1, min_p=1, repetition_penalty=1, seed=0))
    check_settings(Settings(seed=(1 << 64) - 1))
    for kv in CACHE_KINDS:
        check_budgets(Budgets(threads=1, context=1, kv=kv, chunk=1))
    check_budgets(Budgets(ram=1, vram=0, io_threads=1, block_rows=1))
    check_budgets(Budgets(ram=1 << 62, vram=1 << 62, io_threads=64, block_rows=10**9))
