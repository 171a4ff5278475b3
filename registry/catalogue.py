"""The curated list of models, from `resources/catalogue.toml`.

It says what a model is, where its files lie and what its shape is. It never says how large a file is or what its hash
is: those are asked of the Hub.
"""

from __future__ import annotations

import reprlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import resources
from typing import Any, Final, get_args, get_origin, get_type_hints

from engine.errors import DownloadError, SettingsError
from engine.units import LARGEST
from registry.paths import safe_id, safe_path

FILE: Final = "catalogue.toml"
BEST: Final = 100


@dataclass(frozen=True)
class Cache:
    """So many layers that keep keys and values alike: `heads` of them, as wide as `key` and `value`.

    `value` is 0 where the values are a part of the keys. Such a layer sees the last `window` positions, all where it
    is 0.
    """

    layers: int
    heads: int
    key: int
    value: int = 0
    window: int = 0


@dataclass(frozen=True)
class Shape:
    """What a rough estimate needs, counted in weights.

    `parameters` are all of the text model, `active` those that a token passes, its head among them. `experts` are those
    of all experts together, `lookup` those of tables beside the embedding of which a token reads a row. `tower` is
    about what the vision tower has. `tied`: the embedding is the head, too. `state` is what recurrent layers keep, in
    numbers of float32.
    """

    parameters: int
    active: int
    layers: int
    hidden: int
    vocabulary: int
    tied: bool
    caches: tuple[Cache, ...]
    experts: int = 0
    lookup: int = 0
    tower: int = 0
    state: int = 0

    @property
    def embedding(self) -> int:
        return self.hidden * self.vocabulary

    @property
    def body(self) -> int:
        """Weights that every token passes, without the head."""
        return self.parameters - self.experts - self.lookup - self.embedding * (1 if self.tied else 2)

    @property
    def active_experts(self) -> int:
        return self.active - self.body - self.embedding


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue. `good_for` is one sentence.

    `repository` is that of its GGUF files on the Hub, `base` the model that they were made of. `quantisations` are
    named as the offers of `registry.items`, the preferred one first. `mmproj` is the file of its vision tower, "" for
    one that sees nothing. `draft` is the id of a small entry with the same vocabulary, "" where there is none.
    `licence` is a name of SPDX's, or its usual name. `context` is the longest that the model was made for. `thinks`:
    it reasons at length before it answers, unless told not to. `rank`, 0 … 100, is our judgement of its answers.
    """

    id: str
    family: str
    name: str
    good_for: str
    repository: str
    base: str
    quantisations: tuple[str, ...]
    licence: str
    gated: bool
    context: int
    rank: int
    shape: Shape
    mmproj: str = ""
    draft: str = ""
    thinks: bool = False

    @property
    def sees(self) -> bool:
        """Whether it can be shown pictures."""
        return bool(self.mmproj)


def catalogue() -> tuple[Entry, ...]:
    """The list that comes with the program. Raises SettingsError where the file is damaged."""
    return parse((resources.files("resources") / FILE).read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Entry, ...]:
    """The models of such a list, in its order. Raises SettingsError, which names the place, for anything else."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(f"it is not TOML text ({error})") from None
    models = content.get("model")
    if set(content) != {"model"} or not isinstance(models, list) or not models:
        raise _wrong("it has to consist of [[model]] tables")
    entries: list[Entry] = []
    for number, given in enumerate(models, 1):
        place = given.get("id") if isinstance(given, dict) else None
        entry = _record(given, Entry, place if isinstance(place, str) and place else f"model {number}")
        assert isinstance(entry, Entry)
        _check(entry)
        entries.append(entry)
    known = {entry.id: entry for entry in entries}
    if len(known) != len(entries):
        raise _wrong("two models have the same id")
    for entry in entries:
        if entry.draft and not _drafts(known.get(entry.draft), entry):
            raise _wrong(f"{entry.id}.draft is no smaller model with the same vocabulary")
    return tuple(entries)


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"The list of models {FILE} is damaged: {what}. Install Millstream again.")


def _drafts(small: Entry | None, large: Entry) -> bool:
    return (
        small is not None
        and small.shape.vocabulary == large.shape.vocabulary
        and 2 * small.shape.active < large.shape.active
    )


def _check(entry: Entry) -> None:
    """What types cannot say."""
    shape = entry.shape
    attending = sum(cache.layers for cache in shape.caches)
    broken = {
        "repository": not _sound(safe_id, entry.repository),
        "base": not _sound(safe_id, entry.base),
        "mmproj": bool(entry.mmproj) and not _sound(safe_path, entry.mmproj),
        "quantisations": not entry.quantisations or len(set(entry.quantisations)) != len(entry.quantisations),
        "context": entry.context < 1,
        "rank": entry.rank > BEST,
        "good_for": not entry.good_for.endswith("."),
        "shape.tower": bool(shape.tower) != entry.sees,
        "shape.layers": not 1 <= attending <= shape.layers,
        "shape.caches": any(not (cache.layers and cache.heads and cache.key) for cache in shape.caches),
        "shape.parameters": shape.body <= 0 or not shape.embedding,
        "shape.active": not 0 <= shape.active_experts <= shape.experts or bool(shape.experts) > shape.active_experts,
    }
    if named := next((name for name, is_broken in broken.items() if is_broken), None):
        raise _wrong(f"{entry.id}.{named} cannot be true")


def _sound(check: Callable[[str], object], name: str) -> bool:
    try:
        check(name)
    except DownloadError:
        return False
    return True


def _record(given: object, kind: Any, place: str) -> object:
    """A table as a dataclass. Raises SettingsError."""
    if not isinstance(given, Mapping):
        raise _wrong(f"{place} is not a table")
    hints = get_type_hints(kind)
    if unknown := sorted(set(given) - set(hints)):
        raise _wrong(f"{place} has a key that is not known, {reprlib.repr(unknown[0])}")
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    if missing := [name for name in needed if name not in given]:
        raise _wrong(f"{place}.{missing[0]} is missing")
    return kind(**{name: _value(value, hints[name], f"{place}.{name}") for name, value in given.items()})


def _value(given: object, kind: Any, place: str) -> object:
    if is_dataclass(kind):
        return _record(given, kind, place)
    if get_origin(kind) is tuple:
        if not isinstance(given, list):
            raise _wrong(f"{place} is not a list")
        return tuple(_value(each, get_args(kind)[0], f"{place}[{number}]") for number, each in enumerate(given))
    fits = type(given) is kind and (given != "" or kind is not str)
    if not fits or (isinstance(given, int) and not 0 <= given <= LARGEST):
        raise _wrong(f"{place} has a value that cannot be")
    return given
