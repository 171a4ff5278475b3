"""`millstream search`: models on the Hub."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from app import options
from app.console import Progress, complain, note, table, write
from engine import SettingsError

NAME = "search"
SUMMARY = "look for models on the Hub"

USUAL = 20
"""Repositories that are told of."""
MOST = 1000


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", type=options.text, metavar="WORDS", help="what stands in the model's name")
    parser.add_argument(
        "--limit", type=options.whole, default=USUAL, metavar="N", help=f"tell of so many at most (default: {USUAL})"
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.limit <= MOST:
        raise SettingsError(f"--limit is a number from 1 to {MOST}.")
    from engine import Cancel
    from registry.known import known
    from registry.sources.hub import Hub

    words = " ".join(arguments.words)
    line = Progress()
    line.show("Asking the Hub", 0, 0)
    try:
        found = Hub.from_environment().search(words, arguments.limit, Cancel())
    finally:
        line.clear()
    if arguments.json:
        listed = [
            {key: value for key, value in dataclasses.asdict(each).items() if key not in ("files", "source")}
            for each in found
        ]
        write(json.dumps({"words": words, "repositories": listed}, ensure_ascii=False) + "\n")
        return 0
    if not found:
        complain(f"The Hub has no model in GGUF files with “{words}” in its name. Try fewer words, or others.")
        return 0
    head = ("repository", "downloads", "licence", "updated", "")
    unknown = {each.id for each in found if not known(each)}
    rows = [
        (
            *(each.id, f"{each.downloads:,}", each.licence or "not told", each.updated),
            ", ".join(word for word, true in (("gated", each.gated), ("cannot run here", each.id in unknown)) if true),
        )
        for each in found
    ]
    write(table([head, *rows], right=(1,)))
    if first := next((each.id for each in found if each.id not in unknown), ""):
        note(f"\nTo download one: millstream pull {first}")
    if any(each.gated for each in found):
        note("gated: its owner lets in whom they choose. Ask on its page on the Hub, then: millstream token set")
    return 0
