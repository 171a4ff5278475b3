"""`millstream bench`: how fast a model runs on this machine, and how that compares with another program."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import options, versus
from app.console import Progress, find_model, open_engine, write
from engine import Budgets, SettingsError, describe, human_bytes
from engine.checks import check_count

if TYPE_CHECKING:
    from app.versus import Compared, Comparison
    from engine import Measurement

NAME = "bench"
SUMMARY = "measure how fast a model runs here"

ROUNDS = 5
LIMIT, LONGEST = 3600, 1_000_000
"""Seconds."""

READS, WORK = "the memory's bandwidth", "the cores' multiply-adds"
"""What the shares are of."""


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(),)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="length of the prefill (512)")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="steps of each decoding run (128)")
    options.json_output(parser)
    group = parser.add_argument_group("beside another program")
    group.add_argument(
        "--vs",
        metavar="COMMAND",
        help="run this command in turn with our own measurement and give the ratios; {model} in it becomes the file's "
        f"path, and its last line has to be a JSON object with {', '.join(versus.SHARES)}",
    )
    group.add_argument("--rounds", type=int, metavar="N", help=f"how often both run ({ROUNDS})")
    group.add_argument("--limit", type=int, metavar="SECONDS", help=f"how long one run may take ({LIMIT})")


def execute(arguments: argparse.Namespace) -> int:
    budgets = options.budgets(arguments)
    check_count("--prompt-tokens", arguments.prompt_tokens)
    check_count("--tokens", arguments.tokens)
    if arguments.vs is not None:
        return _compare(arguments, budgets)
    if arguments.rounds is not None or arguments.limit is not None:
        raise SettingsError("--rounds and --limit belong to --vs, which names the peer's command.")
    return _measure(arguments, budgets)


def _measure(arguments: argparse.Namespace, budgets: Budgets) -> int:
    with open_engine(arguments.model, budgets, arguments.mmproj) as engine:
        measured = engine.measure(arguments.prompt_tokens, arguments.tokens)
        path = engine.info.path
    if arguments.json:
        _write_json({"model": path, **dataclasses.asdict(measured)})
        return 0
    length = arguments.prompt_tokens
    _write_table(
        {
            "model": path,
            "threads": str(measured.threads),
            "prefill": f"{measured.prefill_tok_s:.1f} tokens/s over {length} tokens"
            + _share(measured.prefill_multiply_add_share, WORK),
            "decode": f"{measured.decode_short_tok_s:.1f} tokens/s at short context"
            + _share(measured.decode_short_bandwidth_share, READS),
            "decode, long": f"{measured.decode_long_tok_s:.1f} tokens/s after {length} tokens"
            + _share(measured.decode_long_bandwidth_share, READS),
            "machine": _floors(measured),
            "peak memory": human_bytes(measured.peak_memory_bytes),
            "read": f"{human_bytes(measured.bytes_read)} from disk",
            "a token": f"passes over {human_bytes(measured.bytes_per_token)} of weights",
        }
    )
    return 0


def _compare(arguments: argparse.Namespace, budgets: Budgets) -> int:
    rounds = ROUNDS if arguments.rounds is None else arguments.rounds
    limit = LIMIT if arguments.limit is None else arguments.limit
    check_count("--rounds", rounds)
    if not 1 <= limit <= LONGEST:
        raise SettingsError(f"--limit must be from 1 to {LONGEST}, not {limit}.")
    path = find_model(arguments.model).absolute()
    describe(path)  # a file that cannot run is refused before the peer has run for minutes
    peer = versus.peer_command(arguments.vs, path)
    ours = versus.our_command(path, _options(arguments, budgets))
    line = Progress()
    try:
        made = versus.compare(
            ours,
            peer,
            rounds=rounds,
            limit=limit,
            progress=lambda who, done: line.show(f"{who} is running", done, 2 * rounds),
        )
    finally:
        line.clear()
    compared = versus.summary(made)
    if arguments.json:
        _write_json({"model": str(path), "peer": arguments.vs, **dataclasses.asdict(compared)})
        return 0
    _write_table(
        {
            "model": str(path),
            "peer": arguments.vs,
            "prefill": _against(compared.prefill_tok_s, WORK),
            "decode": _against(compared.decode_short_tok_s, READS),
            "decode, long": _against(compared.decode_long_tok_s, READS),
            "machine": _floors(compared),
        }
    )
    return 0


def _options(arguments: argparse.Namespace, budgets: Budgets) -> list[str]:
    """What our own side is told, so that it measures what was asked for here."""
    told = {
        "--prompt-tokens": arguments.prompt_tokens,
        "--tokens": arguments.tokens,
        "--threads": budgets.threads,
        "--context": budgets.context,
        "--kv": budgets.kv,
        "--chunk": budgets.chunk,
        "--ram": budgets.ram,
        "--vram": budgets.vram,
        "--io-threads": budgets.io_threads,
        "--block-rows": budgets.block_rows,
        "--mmproj": arguments.mmproj,
        "--max-patches": budgets.max_patches,
    }
    return [word for name, value in told.items() if value is not None for word in (name, str(value))]


def _against(compared: Compared, of: str) -> str:
    ratios = " ".join(f"{ratio:.2f}" for ratio in compared.ratios)
    speeds = f"{compared.ours:.1f} against {compared.peer:.1f} tokens/s{_share(compared.share, of)}"
    return f"{compared.ratio:.2f} times the peer's speed ({ratios}): {speeds}"


def _share(share: float | None, of: str) -> str:
    return "" if share is None else f", {100 * share:.0f} % of {of}"


def _floors(told: Measurement | Comparison) -> str:
    """What the machine does at most, as far as it was to be measured."""
    does = []
    if told.read_bandwidth is not None:
        does.append(f"reads {human_bytes(round(told.read_bandwidth))}/s")
    if told.multiply_add_rate is not None:
        does.append(f"multiplies and adds {told.multiply_add_rate / 1e9:.1f} billion times a second")
    return " and ".join(does) or "not measured"


def _write_json(told: dict[str, object]) -> None:
    write(json.dumps(_rounded(told), ensure_ascii=False) + "\n")


def _rounded(value: object) -> object:
    """Numbers with as many digits as say anything."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, float):
        return round(value, 2) if value > 10 else round(value, 4)
    return value


def _write_table(rows: dict[str, str]) -> None:
    write("".join(f"{key:<14}{value}\n" for key, value in rows.items()))
