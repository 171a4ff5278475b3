"""`millstream plan`: where a model's weights will be, what memory it takes, and how fast that makes it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import textwrap
import time
from collections.abc import Iterator, Sequence

from app import options, placement
from app.console import Progress, columns, find_model, tower_of, write
from app.places import measurements_file
from engine import Plan, human_bytes
from engine.cores import processors
from engine.units import plural

NAME = "plan"
SUMMARY = "tell where a model's weights will be, and how fast it will run"

DAY = 86_400
"""Seconds."""
KEY = 14
"""Characters before the values."""


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(),)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--remeasure", action="store_true", help="measure the disk and the memory again")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from engine import plan

    budgets = options.budgets(arguments)
    path = find_model(arguments.model)
    line = Progress()
    line.show("Planning", 0, 0)
    try:
        made = plan(
            path,
            budgets,
            mmproj=tower_of(path, arguments.mmproj),
            measurements=measurements_file(),
            remeasure=arguments.remeasure,
        )
    finally:
        line.clear()
    if arguments.json:
        write(json.dumps(dataclasses.asdict(made), ensure_ascii=False) + "\n")
        return 0
    told = [textwrap.fill(each, columns()) for each in placement.sentences(made)]
    blocks = (_placed(made), _memory(made), _wrapped(_rest(made, budgets.threads)), told)
    write("\n".join("".join(f"{text}\n" for text in block) for block in blocks))
    return 0


def _placed(plan: Plan) -> Iterator[str]:
    """Kinds of weights by tiers."""
    table = placement.table(plan)
    return _aligned([("", *table.tiers), *table.cells])


def _memory(plan: Plan) -> Iterator[str]:
    """What the memory that is granted goes to, and what stands beside it."""
    parts = ((f"  {what}", nbytes) for what, nbytes in placement.parts(plan))
    rows = (("memory granted", plan.ram), *parts, *placement.beside(plan))
    return _aligned([(what, human_bytes(nbytes)) for what, nbytes in rows])


def _rest(plan: Plan, threads: int | None) -> dict[str, str]:
    rows = {
        "a token": placement.a_token(plan.passed_per_token, plan.read_per_token),
    }
    if plan.streams:
        block = f"blocks of {human_bytes(plan.block_bytes)}"
        if plan.block_rows is not None:
            block += f", at most {plan.block_rows:,} {plural(plan.block_rows, 'row')},"
        rows["reads"] = f"{block} by {plan.io_threads} {plural(plan.io_threads, 'thread')}"
    rows["disk"] = _rate(plan.disk)
    rows["computing"] = _rate(plan.computing, " of weights")
    if plan.measured is not None and (age := long_ago(time.time() - plan.measured)):
        rows["measured"] = f"{age} ago; --remeasure measures anew"
    if threads is not None and threads > (most := processors()):
        rows["threads"] = f"{threads}, but only {most} run at once here: as many would be quicker"
    tokens = f"{plan.context:,} {plural(plan.context, 'token')}"
    rows["context"] = f"{tokens}, cached in {plan.kv_kind}; a prompt is read by {plan.chunk:,}"
    return rows


def long_ago(seconds: float) -> str:
    """How old what is older than a day is, in the largest unit of which it is at least two: "2 days"; else ""."""
    for name, length in (("year", 365 * DAY), ("month", 30 * DAY), ("week", 7 * DAY), ("day", DAY)):
        count = int(seconds // length)
        if count >= 2 or (count == 1 and length == DAY):
            return f"{count} {name}s" if count > 1 else f"{count} {name}"
    return ""


def _rate(bandwidth: float | None, what: str = "") -> str:
    return "not measured" if bandwidth is None else f"{human_bytes(round(bandwidth))}{what}/s"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"{first:<{widths[0]}}{cells}"


def _wrapped(rows: dict[str, str]) -> Iterator[str]:
    for key, value in rows.items():
        yield textwrap.fill(value, columns(), initial_indent=f"{key:<{KEY}}", subsequent_indent=" " * KEY)
