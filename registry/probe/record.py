"""A probe to and from JSON, so that one machine's can be looked at on another."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from engine.errors import SettingsError
from engine.units import LARGEST
from registry.probe.tree import Probe, Problem

VERSION: Final = 1
_PLACE: Final = 60


class _Wrong(Exception):
    """A value that the tree has no place for; its text names the key."""


def to_json(probe: Probe) -> str:
    """One object, with the version of its form beside the fields of `Probe`."""
    return json.dumps({"version": VERSION, **dataclasses.asdict(probe)}, ensure_ascii=False, indent=2)


def from_json(text: str) -> Probe:
    """What `to_json` wrote. Keys that this version does not know are left out, and a problem of the probe names them.

    Raises SettingsError for anything that is no probe.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise SettingsError("This is not a probe of a machine: it is not JSON text.") from None
    if not isinstance(content, dict) or content.pop("version", None) != VERSION:
        raise SettingsError(f"This is not a probe of a machine that this version reads (it reads version {VERSION}).")
    unknown: list[str] = []
    try:
        probe = _value(content, Probe, "", unknown)
    except _Wrong as wrong:
        raise SettingsError(f"This is not a sound probe of a machine: {wrong}.") from None
    assert isinstance(probe, Probe)
    if not unknown:
        return probe
    names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    left = Problem("record", f"The record holds what this version does not know, and it was left out: {names}.")
    return dataclasses.replace(probe, problems=(*probe.problems, left))


def _value(given: object, kind: Any, place: str, unknown: list[str]) -> object:
    """`given` as a value of the type `kind`. Raises _Wrong."""
    if get_origin(kind) in (Union, types.UnionType):
        if given is None:
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if dataclasses.is_dataclass(kind):
        return _record(given, kind, place, unknown)
    if get_origin(kind) is tuple:
        if not isinstance(given, list):
            raise _Wrong(f"{place} is not a list")
        return tuple(_value(each, get_args(kind)[0], f"{place}[{n}]", unknown) for n, each in enumerate(given))
    if get_origin(kind) is Literal:
        fits = isinstance(given, str) and given in get_args(kind)
    elif kind in (int, float):
        return _number(given, kind, place)
    else:
        fits = type(given) is kind
    if not fits:
        raise _Wrong(f"{place} has a value that cannot be")
    return given


def _number(given: object, kind: Any, place: str) -> int | float:
    """A count, or a rate, which is more than 0."""
    if type(given) is int and 0 <= given <= LARGEST and (kind is int or given > 0):
        return int(given) if kind is int else float(given)
    if type(given) is float and kind is float and 0 < given <= LARGEST:
        return given
    raise _Wrong(f"{place} has a value that cannot be")


def _record(given: object, kind: Any, place: str, unknown: list[str]) -> object:
    if not isinstance(given, dict):
        raise _Wrong(f"{place or 'it'} is not an object")
    within = f"{place}." if place else ""
    hints = get_type_hints(kind)
    unknown += [f"{within}{key}"[:_PLACE] for key in given if key not in hints]
    if missing := [name for name in hints if name not in given]:
        raise _Wrong(f"{within}{missing[0]} is missing")
    return kind(**{name: _value(given[name], hint, f"{within}{name}", unknown) for name, hint in hints.items()})
