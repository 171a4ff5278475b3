"""The options that commands share, and what they amount to. Each is declared here once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from engine import Budgets, Image, Message, Settings, SettingsError
from engine.checks import check_budgets, check_settings
from engine.types import EFFORTS
from engine.units import elided, parse_bytes

AUTO = "auto"
"""The value of an option that leaves the choice to the engine."""


def model(*, default: str | None = None, sweep: bool = False) -> argparse.ArgumentParser:
    """Which model, and how it is run: accepted alike by every command that takes a model.

    With `sweep`, `--ram` takes several sizes: `rams` is then the list of them, and `ram` is left to the engine.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?" if default else None,
        default=default,
        help="a file, a checkpoint's folder, a name in the library, or starter"
        + (f" (default: {default})" if default else ""),
    )
    group = parser.add_argument_group("how the model is run")
    group.add_argument(
        "--threads",
        type=_auto(whole),
        metavar="N",
        help="threads that compute (default: one for each performance core)",
    )
    group.add_argument(
        "--context",
        type=_auto(whole),
        metavar="N",
        help="tokens that prompt and reply may fill together (default: as many as the model allows, up to 8192, and "
        "where memory is short fewer, down to 1024)",
    )
    group.add_argument("--kv", default=Budgets.kv, metavar="FORM", help="key-value cache: f16 (default), f32 or q8_0")
    group.add_argument("--chunk", type=_auto(whole), metavar="N", help=f"prompt tokens per pass ({Budgets.chunk})")
    group.add_argument(
        "--mmproj", type=text, metavar="FILE", help="the model's vision tower (default: the one that lies beside it)"
    )
    group.add_argument(
        "--max-patches",
        type=_auto(whole),
        metavar="N",
        help="look at a picture in at most so many patches, which bounds time and memory (default: 4096 where the size "
        "follows the picture's own, as in Qwen's models, else what the model was made for)",
    )
    group = parser.add_argument_group(
        "memory",
        "What does not fit streams from disk. SIZE is as in 512MB, 1.5GB or 2GiB; M, G and T stand for MB, GB and TB. "
        "auto is the default.",
    )
    if sweep:
        parser.set_defaults(ram=None)
        group.add_argument(
            "--ram",
            dest="rams",
            type=_several(size),
            metavar="SIZE,…",
            help="memory for the model, its cache and its buffers (default: what is free, but for a reserve); several "
            "sizes are measured in turn",
        )
    else:
        group.add_argument(
            "--ram",
            type=_auto(size),
            metavar="SIZE",
            help="memory for the model, its cache and its buffers (default: what is free, but for a reserve)",
        )
    group.add_argument(
        "--vram", type=_auto(size), metavar="SIZE", help="the same of a graphics card (default: what is free there)"
    )
    group.add_argument(
        "--io-threads",
        type=_auto(whole),
        metavar="N",
        help="reads from disk at once, 1 to 64 (default: as many as this disk gains from)",
    )
    group.add_argument(
        "--block-rows",
        type=_auto(whole),
        metavar="N",
        help="most rows of a matrix that are read at once, at least 1 (default: as suits the memory and the disk)",
    )
    return parser


def prompt() -> argparse.ArgumentParser:
    """The text to begin from."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "-p", "--prompt", type=text, required=True, metavar="TEXT", help="the prompt; - reads standard input"
    )
    return parser


def sampling() -> argparse.ArgumentParser:
    """How a reply is made."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("how the reply is made")
    group.add_argument("--system", type=text, metavar="TEXT", help="instructions before the conversation")
    group.add_argument(
        "--max-tokens", type=whole, metavar="N", help="most tokens of a reply (default: until the context is full)"
    )
    group.add_argument(
        "--seed", type=whole, metavar="N", help="the same seed gives the same reply (default: a fresh one each time)"
    )
    group.add_argument(
        "--temperature",
        type=float,
        default=Settings.temperature,
        metavar="T",
        help=f"0 always takes the likeliest token ({Settings.temperature})",
    )
    for name, kind, default, meaning in (
        ("--top-k", whole, Settings.top_k, "only the K likeliest tokens, 0 is off"),
        ("--top-p", float, Settings.top_p, "only the likeliest tokens that make up P, 1 is off"),
        ("--min-p", float, Settings.min_p, "only tokens P times as likely as the likeliest, 0 is off"),
        ("--repetition-penalty", float, Settings.repetition_penalty, "above 1, used tokens become less likely"),
    ):
        group.add_argument(name, type=kind, default=default, metavar="X", help=f"{meaning} ({default})")
    group.add_argument(
        "--stop", type=text, action="append", default=[], metavar="TEXT", help="end before this text; repeatable"
    )
    group = parser.add_argument_group("reasoning")
    group.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        help="have the model reason before it answers, or not (default: as the model does by itself)",
    )
    group.add_argument("--reasoning", choices=EFFORTS, help="how much to reason (default: as the model does by itself)")
    group.add_argument("--final-only", action="store_true", help="show only the answer, without the reasoning")
    return parser


def json_output(parser: argparse.ArgumentParser) -> None:
    """`--json`, for the commands that have it."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def budgets(arguments: argparse.Namespace) -> Budgets:
    """Raises SettingsError for a value outside what is allowed."""
    chosen = Budgets(
        threads=arguments.threads,
        context=arguments.context,
        kv=arguments.kv,
        chunk=Budgets.chunk if arguments.chunk is None else arguments.chunk,
        max_patches=arguments.max_patches,
        ram=arguments.ram,
        vram=arguments.vram,
        io_threads=arguments.io_threads,
        block_rows=arguments.block_rows,
    )
    check_budgets(chosen)
    return chosen


def settings(arguments: argparse.Namespace) -> Settings:
    """Raises SettingsError for a value outside what is allowed."""
    chosen = Settings(
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        repetition_penalty=arguments.repetition_penalty,
        seed=arguments.seed,
        stop=tuple(arguments.stop),
        thinking=arguments.thinking,
        effort=arguments.reasoning,
    )
    check_settings(chosen)
    return chosen


def images(parser: argparse.ArgumentParser) -> None:
    """`--image`, for the commands that have it."""
    parser.add_argument(
        "--image",
        type=text,
        action="append",
        default=[],
        metavar="FILE",
        help="a picture for the model to look at, before the prompt; repeatable, in order",
    )


def read_images(arguments: argparse.Namespace) -> tuple[Image, ...]:
    """Raises ImageError for one that cannot be read."""
    from engine.vision.images import read

    return tuple(Image(read(path), path.name) for path in map(Path, arguments.image))


def opening(arguments: argparse.Namespace) -> list[Message]:
    """What stands before the first question."""
    return [] if arguments.system is None else [Message("system", arguments.system)]


def prompt_text(arguments: argparse.Namespace) -> str:
    """The prompt itself, from standard input where it is "-"."""
    if arguments.prompt != "-":
        return str(arguments.prompt)
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"Standard input is not UTF-8 text: byte {error.start} is out of place.") from error
    except OSError as error:
        raise SettingsError(f"Standard input cannot be read: {error.strerror}.") from error


def text(argument: str) -> str:
    """An argument that is text. Bytes that are not UTF-8 have become lone surrogates on their way here."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError("the text is not UTF-8") from error
    return argument


def size(argument: str) -> int:
    """Bytes, as the type of an option."""
    try:
        return parse_bytes(argument)
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def whole(argument: str) -> int:
    try:
        return int(argument)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{elided(argument)!r} is not a whole number") from error


def _auto(kind: Callable[[str], int]) -> Callable[[str], int | None]:
    """The same, or `None` for "auto" in any letters."""
    return lambda argument: None if argument.strip().lower() == AUTO else kind(argument)


def _several(kind: Callable[[str], int]) -> Callable[[str], list[int | None]]:
    """A list of these, with commas between them."""
    return lambda argument: [_auto(kind)(part) for part in argument.split(",")]
