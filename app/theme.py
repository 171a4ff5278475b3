"""Themes as data: one file of named colours each, in `resources/themes`. No Qt."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Theme:
    """Colours by role, as `#rrggbb`.

    `surface` lies behind everything, `raised` behind what stands out from it; `text` and `muted` are written on both,
    `accent` too; `on_accent` is written on `accent`. `border` only separates, it never carries a meaning alone.
    `warn` and `bad` are written on `surface` and `raised`; `code` lies behind code and behind what is pressed.
    """

    name: str
    dark: bool
    surface: str
    raised: str
    text: str
    muted: str
    accent: str
    on_accent: str
    border: str
    warn: str
    bad: str
    code: str


@dataclass(frozen=True)
class TypeScale:
    """The four sizes of type, and the line height, all from the size of the body text (pixels)."""

    body: int = 15

    @property
    def small(self) -> int:
        return round(self.body * 0.867)

    @property
    def title(self) -> int:
        return round(self.body * 1.2)

    @property
    def display(self) -> int:
        return round(self.body * 1.6)

    @property
    def line_height(self) -> int:
        return round(self.body * 1.5)


def theme_names() -> tuple[str, ...]:
    """All themes that come with the program, by file name."""
    files = (resources.files("resources") / "themes").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load_theme(name: str) -> Theme:
    data = tomllib.loads((resources.files("resources") / "themes" / f"{name}.toml").read_text(encoding="utf-8"))
    return Theme(name=data["name"], dark=data["dark"], **data["roles"])
