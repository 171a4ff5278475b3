"""`millstream run`: one prompt, one reply."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
from collections.abc import Iterable, Sequence

from app import options
from app.console import Progress, Thoughts, note_cut, note_reasoning, open_engine, write
from app.tools_file import read_tools
from engine import Event, Finished, Message, PrefillProgress, Reasoning, SettingsError, Text, ToolCall

NAME = "run"
SUMMARY = "answer one prompt"


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(), options.prompt(), options.sampling()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raw", action="store_true", help="go on from the text itself, without the chat template")
    parser.add_argument(
        "--tools",
        metavar="FILE",
        help="a JSON file with a list of tools that the model may call; each call is printed as a line of JSON",
    )
    options.images(parser)
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    budgets, settings = options.budgets(arguments), options.settings(arguments)
    if settings.seed is None:
        settings = dataclasses.replace(settings, seed=secrets.randbits(32))
    if arguments.raw:
        _check_raw(arguments)
    prompt = options.prompt_text(arguments)
    tools = read_tools(arguments.tools) if arguments.tools is not None else ()
    images = options.read_images(arguments)
    with open_engine(arguments.model, budgets, arguments.mmproj) as engine:
        if arguments.raw:
            events = engine.generate(prompt, settings)
        else:
            messages = [*options.opening(arguments), Message("user", prompt, images=images)]
            events = engine.chat(messages, settings, tools=tools)
        reply = _Reply(stream=not arguments.json, final_only=arguments.final_only)
        finished = reply.follow(events)
        context, largest = engine.context_length, engine.info.context_length
    if arguments.json:
        result = {
            "text": reply.text,
            "reasoning": reply.reasoning,
            "tool_calls": [_call(call) for call in reply.calls],
            "finish_reason": finished.reason,
            "in_reasoning": finished.in_reasoning,
            "seed": settings.seed,
            "usage": dataclasses.asdict(finished.usage),
            "timings": dataclasses.asdict(finished.timings),
        }
        if arguments.final_only:
            del result["reasoning"]
        write(json.dumps(result, ensure_ascii=False) + "\n")
    else:
        note_cut(finished, context, f"; --context takes up to {largest}" if largest > context else "")
    note_reasoning(settings, reply.reasoning)
    return 0


def _check_raw(arguments: argparse.Namespace) -> None:
    """Raises SettingsError for what only a chat template can tell the model."""
    given = {
        "--system": arguments.system,
        "--tools": arguments.tools,
        "--image": arguments.image or None,
        "--no-thinking" if arguments.thinking is False else "--thinking": arguments.thinking,
        "--reasoning": arguments.reasoning,
    }
    for option, value in given.items():
        if value is not None:
            raise SettingsError(
                f"{option} has no place in raw text, which the model gets as it is: leave {option} or --raw away."
            )


def _call(call: ToolCall) -> dict[str, object]:
    return {"name": call.name, "arguments": json.loads(call.arguments)}


class _Reply:
    """One reply, as far as it has come. `stream` shows it as it comes, each call on a line of its own."""

    def __init__(self, *, stream: bool, final_only: bool) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[ToolCall] = []
        self._stream = stream
        self._line_open = True
        self._progress = Progress()
        self._thoughts = Thoughts(hidden=final_only)

    def follow(self, events: Iterable[Event]) -> Finished:
        """Take it in to its end. Where it fails before, what has been shown of it ends its line all the same."""
        finished: Finished | None = None
        try:
            for event in events:
                match event:
                    case PrefillProgress(done, total, picture=picture):
                        self._progress.show("Looking at a picture" if picture else "Reading the prompt", done, total)
                    case Reasoning(text):
                        self._progress.clear()
                        self.reasoning += text
                        if self._stream:
                            self._thoughts.show(text)
                    case Text(text):
                        self._write(text)
                        self.text += text
                    case ToolCall():
                        line = json.dumps(_call(event), ensure_ascii=False) + "\n"
                        self._write("\n" + line if self.text and self._line_open else line)
                        self.calls.append(event)
                    case Finished():
                        finished = event
        finally:
            self._write("\n" if self._line_open and (finished or self.text) else "")
        assert finished is not None, "a reply ends with Finished"
        return finished

    def _write(self, text: str) -> None:
        self._progress.clear()
        self._thoughts.close()
        if self._stream and text:
            write(text)
            self._line_open = not text.endswith("\n")
