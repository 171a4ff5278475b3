"""What a person chose that each model may use: a small record beside the settings, which may be deleted. No Qt."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.types import Budgets

if TYPE_CHECKING:
    from registry.saved import Fields


class ChosenBudgets:
    """By the model's file, or the folder of a checkpoint. It belongs off the window's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def of(self, model: Path) -> Budgets | None:
        """None where nothing was chosen, or the record cannot be read."""
        return self._read().get(_key(model))

    def choose(self, model: Path, budgets: Budgets) -> None:
        """Keep it for the next start. What leaves everything open is not kept. A disk that refuses makes it forget: the
        model runs without it, too."""
        from registry.saved import write_json

        with self._lock, suppress(OSError):
            known = self._read()
            known.pop(_key(model), None)
            if budgets != Budgets():
                known[_key(model)] = budgets
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"models": [_written(name, chosen) for name, chosen in known.items()]})

    def _read(self) -> dict[str, Budgets]:
        from registry.saved import read_json

        known: dict[str, Budgets] = {}
        with suppress(OSError, ValueError):
            for each in read_json(self._path).each("models"):
                with suppress(ValueError):  # one that was damaged by hand takes no other with it
                    known[each.text("path")] = _read(each)
        return known


def _key(model: Path) -> str:
    """The files of a checkpoint are loaded by their folder, and told of by the first of them."""
    return str((model.parent if model.suffix == ".safetensors" else model).absolute())


def _written(path: str, budgets: Budgets) -> dict[str, object]:
    """0 stands for what is left open."""
    open_ones = {name: getattr(budgets, name) or 0 for name in ("ram", "context", "threads")}
    return {"path": path, **open_ones, "kv": budgets.kv}


def _read(fields: Fields) -> Budgets:
    """Raises ValueError."""
    from engine.checks import check_budgets
    from engine.errors import SettingsError

    ram, context, threads = (fields.count(name) or None for name in ("ram", "context", "threads"))
    budgets = replace(Budgets(), ram=ram, context=context, threads=threads, kv=fields.text("kv"))
    try:
        check_budgets(budgets)
    except SettingsError as error:
        raise ValueError(str(error)) from error
    return budgets
