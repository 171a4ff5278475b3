"""`millstream run`: one prompt, one reply."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
from collections.abc import Iterable, Sequence

from app import options
from app.console import Progress, Thoughts, note_cut, open_engine, write
from engine import Event, Finished, Message, PrefillProgress, Reasoning, SettingsError, Text

NAME = "run"
SUMMARY = "answer one prompt"


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(), options.prompt(), options.sampling()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="go on from the text itself, without the chat template")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    budgets, settings = options.budgets(arguments), options.settings(arguments)
    if settings.seed is None:
        settings = dataclasses.replace(settings, seed=secrets.randbits(32))
    if arguments.raw and arguments.system is not None:
        raise SettingsError("--system has no place in raw text: write it into the prompt, or leave --raw away.")
    prompt = options.prompt_text(arguments)
    with open_engine(arguments.model, budgets) as engine:
        if arguments.raw:
            events = engine.generate(prompt, settings)
        else:
            events = engine.chat([*options.opening(arguments), Message("user", prompt)], settings)
        text, reasoning, finished = _follow(events, stream=not arguments.json)
    if arguments.json:
        result = {
            "text": text,
            "reasoning": reasoning,
            "finish_reason": finished.reason,
            "seed": settings.seed,
            "usage": dataclasses.asdict(finished.usage),
            "timings": dataclasses.asdict(finished.timings),
        }
        write(json.dumps(result, ensure_ascii=False) + "\n")
        return 0
    if not text.endswith("\n"):
        write("\n")
    note_cut(finished)
    return 0


def _follow(events: Iterable[Event], *, stream: bool) -> tuple[str, str, Finished]:
    """Take a reply in, shown as it comes where `stream` is set: → its text, its reasoning, its end."""
    progress, shown = Progress(), Thoughts()
    pieces: list[str] = []
    thoughts: list[str] = []
    for event in events:
        match event:
            case PrefillProgress(done, total):
                progress.show("Reading the prompt", done, total)
            case Reasoning(text):
                progress.clear()
                thoughts.append(text)
                if stream:
                    shown.show(text)
            case Text(text):
                progress.clear()
                shown.close()
                pieces.append(text)
                if stream:
                    write(text)
            case Finished():
                progress.clear()
                shown.close()
                return "".join(pieces), "".join(thoughts), event
    raise AssertionError("a reply ends with Finished")
