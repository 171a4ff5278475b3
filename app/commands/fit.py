"""`millstream fit`: whether a model runs here and how fast, before it is downloaded."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app import options
from app.console import BAD_INPUT, Progress, columns, write
from app.places import headers_folder, measurements_file
from engine import Budgets, human_bytes

if TYPE_CHECKING:
    from registry.fit import Fit
    from registry.fitting import Here
    from registry.items import Offer

NAME = "fit"
SUMMARY = "tell whether a model runs here, and how fast, before it is downloaded"

KEY = 14
"""Characters before the values."""
NOTHING = "–"


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(),)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "MODEL is also a repository of the Hub, owner/name, for all that it offers, or one file or quantisation of it: "
        "owner/name:Q4_K_M. Only the beginnings of files are fetched. The exit code is 2 where nothing runs."
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.fitting import Here, Local, fit_of
    from registry.library import Library
    from registry.naming import remote_name

    budgets = options.budgets(arguments)
    library = Library.default()
    here = Here(library.root, measurements_file())
    mmproj = None if arguments.mmproj is None else Path(arguments.mmproj)
    line = Progress()
    named = remote_name(arguments.model)
    if named is not None and not Path(arguments.model).exists() and not _in_library(library.root, arguments.model):
        return _remote(arguments, *named, budgets, here, line)
    path = library.resolve(arguments.model)
    line.show("Planning", 0, 0)
    try:
        found = fit_of(Local(path, mmproj), budgets, here)
    finally:
        line.clear()
    if arguments.json:
        write(_json({"model": str(path), **_told(found)}))
    else:
        write(_details(path.name, found))
    return 0 if found.runs else BAD_INPUT


def _in_library(root: Path, name: str) -> bool:
    return (root / name).exists() or (root / f"{name}.gguf").exists()


def _remote(arguments: argparse.Namespace, id: str, part: str, budgets: Budgets, here: Here, line: Progress) -> int:
    """One offer of a repository, where `part` names it, or all of them."""
    from registry.fitting import Remote, fit_of
    from registry.headers import Headers
    from registry.items import offers
    from registry.naming import choose
    from registry.sources.hub import Hub

    source, headers = Hub.from_environment(), Headers(headers_folder())
    mmproj = None if arguments.mmproj is None else Path(arguments.mmproj)
    try:
        line.show(f"Looking at {id}", 0, 0)
        repository = headers.repository(source, id, here.cancel)
        offered = offers(repository)
        chosen = (choose(id, offered, part).offer,) if part else offered
        found: list[tuple[Offer, Fit]] = []
        for offer in chosen:

            def told(name: str, nbytes: int) -> None:
                line.show(f"Reading the beginning of {name}, {human_bytes(nbytes)}", 0, 0)

            found.append((offer, fit_of(Remote(source, offer, headers, mmproj, told), budgets, here)))
    finally:
        line.clear()
    if arguments.json:
        listed = [{"name": offer.name, "bytes": offer.nbytes, **_told(fit)} for offer, fit in found]
        about = {"repository": id, "revision": repository.revision}
        write(_json({**about, **listed[0]} if part else {**about, "offers": listed}))
    elif part:
        (offer, fit), *_ = found
        write(_details(f"{id}:{offer.name}", fit, offer.nbytes))
    elif found:
        write(_table(found))
    else:
        write(f"{id} offers no model that can be loaded here: look for one with GGUF or safetensors files.\n")
    return 0 if any(fit.runs for _, fit in found) else BAD_INPUT


def _json(told: dict[str, object]) -> str:
    return json.dumps(told, ensure_ascii=False) + "\n"


def _told(found: Fit) -> dict[str, object]:
    return {
        "label": found.label.name.lower(),
        "words": found.words,
        "why": found.why,
        "tok_s": found.tok_s,
        "first_token_s": found.first_token_s,
        "budgets": dataclasses.asdict(found.budgets),
        "plan": None if found.plan is None else dataclasses.asdict(found.plan),
    }


def _details(name: str, found: Fit, nbytes: int | None = None) -> str:
    from app import placement
    from registry.fit import PROMPT, speed

    rows = {"model": name}
    if nbytes is not None:
        rows["to download"] = human_bytes(nbytes)
    rows["fit"] = f"{found.label.shape} {found.label.words}"
    if found.why:
        rows["why"] = found.why
    if (plan := found.plan) is not None:
        needs = sum(size for what, size in placement.parts(plan) if what != "not needed")
        rows["memory"] = f"{human_bytes(needs)} of {human_bytes(plan.ram)}"
        rows["speed"] = "not measured" if found.tok_s is None else speed(found.tok_s)
        if found.first_token_s is not None:
            prompt = min(PROMPT, plan.context)
            rows["first token"] = f"{_seconds(found.first_token_s)} after a prompt of {prompt} tokens"
        rows["context"] = f"{plan.context:,} tokens, cached in {plan.kv_kind}"
        advised = _advised(found)
        if advised:
            rows["better with"] = advised
    return "".join(f"{text}\n" for text in _wrapped(rows))


def _advised(found: Fit) -> str:
    """The options that make it fit better; "" where there are none."""
    plan, budgets = found.plan, found.budgets
    assert plan is not None
    changed = []
    if budgets.context is not None and budgets.context != plan.context:
        changed.append(f"--context {budgets.context}")
    if budgets.kv != plan.kv_kind:
        changed.append(f"--kv {budgets.kv}")
    return " ".join(changed)


def _table(found: Sequence[tuple[Offer, Fit]]) -> str:
    from registry.fit import Label

    heading = ("", "download", "fit", "speed", "first token", "context")
    rows = [heading]
    for offer, fit in found:
        plan = fit.plan
        rows.append(
            (
                offer.name,
                human_bytes(offer.nbytes),
                f"{fit.label.shape} {fit.label.words}",
                NOTHING if fit.tok_s is None else f"{_figure(fit.tok_s)} tok/s",
                NOTHING if fit.first_token_s is None else _seconds(fit.first_token_s),
                NOTHING if plan is None else f"{plan.context:,}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if at in (0, 2) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    for offer, fit in found:
        if fit.label is Label.CANNOT:
            lines += ["", *textwrap.wrap(f"{offer.name}: {fit.why}", columns())]
    return "".join(f"{line}\n" for line in lines)


def _figure(tok_s: float) -> str:
    return f"{tok_s:.2g}" if tok_s < 9.95 else f"{tok_s:.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _wrapped(rows: dict[str, str]) -> Iterator[str]:
    for key, value in rows.items():
        yield textwrap.fill(value, columns(), initial_indent=f"{key:<{KEY}}", subsequent_indent=" " * KEY)
