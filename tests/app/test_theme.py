"""Every theme is complete, and what is written in it can be read (WCAG 2.2, success criteria 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from app.theme import Theme, TypeScale, load_theme, theme_names

AA_TEXT = 4.5
AA_SIGNS = 3.0
TEXT_PAIRS = (
    *((role, ground) for role in ("text", "muted") for ground in ("surface", "raised", "code")),
    *((role, ground) for role in ("accent", "warn", "bad") for ground in ("surface", "raised")),
    ("on_accent", "accent"),
)
# What shows the focus, how far a bar has come, and the outline of an error and of the stop button.
SIGN_PAIRS = (
    ("accent", "surface"),
    ("accent", "raised"),
    ("accent", "border"),
    ("bad", "raised"),
    ("muted", "surface"),
    ("text", "surface"),
    ("text", "raised"),
)


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, 1 to 21, as WCAG defines it."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    """Relative luminance of `#rrggbb` in sRGB, as WCAG defines it."""
    channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_contrast_is_that_of_the_definition() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


def test_there_is_a_light_theme_and_a_dark_one() -> None:
    assert {load_theme(name).dark for name in theme_names()} == {True, False}


@pytest.mark.parametrize("name", theme_names())
def test_every_role_is_a_colour(name: str) -> None:
    theme = load_theme(name)
    roles = [field.name for field in fields(Theme) if field.name not in ("name", "dark")]
    assert all(re.fullmatch("#[0-9a-f]{6}", getattr(theme, role)) for role in roles)


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize(("role", "ground"), TEXT_PAIRS)
def test_text_can_be_read(name: str, role: str, ground: str) -> None:
    theme = load_theme(name)
    assert contrast(getattr(theme, role), getattr(theme, ground)) >= AA_TEXT


@pytest.mark.parametrize("name", theme_names())
@pytest.mark.parametrize(("role", "ground"), SIGN_PAIRS)
def test_signs_can_be_seen(name: str, role: str, ground: str) -> None:
    theme = load_theme(name)
    assert contrast(getattr(theme, role), getattr(theme, ground)) >= AA_SIGNS


def test_all_sizes_follow_the_body() -> None:
    assert (TypeScale().small, TypeScale().body, TypeScale().title, TypeScale().display, TypeScale().line_height) == (
        13,
        15,
        18,
        24,
        22,
    )
    assert TypeScale(30).small == 26
    assert TypeScale(30).line_height == 45
