"""`millstream bench`: how fast a model runs on this machine, and how that compares with another program."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app import child, options, sweep, versus
from app.console import BAD_INPUT, Progress, columns, find_model, open_engine, tower_of, write
from app.placement import a_token
from engine import Budgets, ModelInfo, SettingsError, human_bytes
from engine.checks import check_budgets, check_count
from engine.units import plural

if TYPE_CHECKING:
    from app.versus import Compared, Comparison
    from engine import Measurement

NAME = "bench"
SUMMARY = "measure how fast a model runs here"

ROUNDS = 5
LIMIT, LONGEST = 3600, 1_000_000
"""Seconds."""

FINGERPRINTED, STEPS = "A mill by the river", 8
"""The text, and how many tokens after it, by whose fingerprint two measurements are known to be of one model."""
LEAST_CONTEXT = 64
"""Positions that the fingerprint has room in."""

DIFFERENT = 1
"""The exit code where fingerprints differ."""

READS, WORK = "the memory's bandwidth", "the cores' multiply-adds"
"""What the shares are of."""


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(sweep=True),)


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
    check_count("--prompt-tokens", arguments.prompt_tokens)
    check_count("--tokens", arguments.tokens)
    budgets = [dataclasses.replace(options.budgets(arguments), ram=ram) for ram in arguments.rams or (None,)]
    for each in budgets:
        check_budgets(each)
    limit = LIMIT if arguments.limit is None else arguments.limit
    if not 1 <= limit <= LONGEST:
        raise SettingsError(f"--limit must be from 1 to {LONGEST}, not {limit}.")
    if arguments.vs is not None:
        if len(budgets) > 1:
            raise SettingsError("--vs compares under one budget: name a single size with --ram.")
        return _compare(arguments, budgets[0], limit)
    if arguments.rounds is not None:
        raise SettingsError("--rounds belongs to --vs, which names the peer's command.")
    if len(budgets) > 1:
        return _sweep(arguments, budgets, limit)
    if arguments.limit is not None:
        raise SettingsError("--limit belongs to --vs, or to several sizes for --ram.")
    return _measure(arguments, budgets[0])


def _measure(arguments: argparse.Namespace, budgets: Budgets) -> int:
    from engine import describe

    path = find_model(arguments.model)
    if budgets.context is None:
        budgets = _with_context(arguments, budgets, describe(path))
    with open_engine(str(path), budgets, arguments.mmproj) as engine:
        measured = engine.measure(arguments.prompt_tokens, arguments.tokens)
        fingerprint = engine.fingerprint(FINGERPRINTED, STEPS).sha256
    told = {"model": str(path), **dataclasses.asdict(measured), "fingerprint": fingerprint}
    if arguments.json:
        _write_json(told)
        return 0
    length = arguments.prompt_tokens
    streamed = {}
    if measured.read_per_token:
        streamed = {
            "waiting": f"{100 * measured.stall_share:.0f} % of a step for the disk",
        }
        if measured.hit_rate is not None:
            streamed["ready"] = f"{100 * measured.hit_rate:.0f} % of blocks when they were asked for"
        if measured.expert_hit_rate is not None:
            streamed["experts"] = f"{100 * measured.expert_hit_rate:.0f} % were still in memory"
    _write_table(
        {
            "model": str(path),
            "threads": str(measured.threads),
            "memory": f"{human_bytes(measured.ram)} granted, {human_bytes(sweep.resident(told))} of weights resident",
            "prefill": f"{measured.prefill_tok_s:.1f} tokens/s over {length} {plural(length, 'token')}"
            + _share(measured.prefill_multiply_add_share, WORK),
            "decode": f"{measured.decode_short_tok_s:.1f} tokens/s at short context"
            + _share(measured.decode_short_bandwidth_share, READS),
            "decode, long": f"{measured.decode_long_tok_s:.1f} tokens/s after {length} {plural(length, 'token')}"
            + _share(measured.decode_long_bandwidth_share, READS),
            "machine": _floors(measured),
            "peak memory": human_bytes(measured.peak_memory_bytes),
            "read": f"{human_bytes(measured.bytes_read)} from disk in all",
            "a token": a_token(measured.bytes_per_token, measured.read_per_token),
            **streamed,
            "fingerprint": fingerprint,
        }
    )
    return 0


def _sweep(arguments: argparse.Namespace, budgets: Sequence[Budgets], limit: float) -> int:
    from engine import describe

    path = find_model(arguments.model).absolute()
    # A file that cannot run is refused once, and not under each budget.
    model = describe(path, mmproj=tower_of(path, arguments.mmproj))
    commands = [
        (each.ram, child.our_command(path, _options(arguments, _with_context(arguments, each, model))))
        for each in budgets
    ]
    line, rows = Progress(), []
    if not arguments.json:
        write(sweep.heading())

    def show(ram: int | None, done: int) -> None:
        granted = "the memory that is free" if ram is None else human_bytes(ram)
        line.show(f"Measuring with {granted}", done, len(commands))

    try:
        for row in sweep.sweep(commands, limit, show):
            line.clear()
            rows.append(row)
            if not arguments.json:
                write(sweep.line(row, columns()))
    finally:
        line.clear()
    agree, sentence = sweep.agreement(rows)
    if arguments.json:
        write(json.dumps([_rounded(_told(row)) for row in rows], ensure_ascii=False) + "\n")
    else:
        write(f"{sentence}\n")
    if not agree:
        return DIFFERENT
    return BAD_INPUT if any(row.error for row in rows) else 0


def _told(row: sweep.Row) -> dict[str, object]:
    return {"ram": row.ram, "error": row.error} if row.error else dict(row.told)


def _with_context(arguments: argparse.Namespace, budgets: Budgets, model: ModelInfo) -> Budgets:
    """With room for what is measured and no more, unless the person said otherwise."""
    if budgets.context is not None:
        return budgets
    wanted = max(arguments.prompt_tokens + arguments.tokens, LEAST_CONTEXT)
    return dataclasses.replace(budgets, context=min(wanted, model.context_length or wanted))


def _compare(arguments: argparse.Namespace, budgets: Budgets, limit: float) -> int:
    from engine import describe

    rounds = ROUNDS if arguments.rounds is None else arguments.rounds
    check_count("--rounds", rounds)
    path = find_model(arguments.model).absolute()
    # A file that cannot run is refused before the peer has run for minutes.
    model = describe(path, mmproj=tower_of(path, arguments.mmproj))
    budgets = _with_context(arguments, budgets, model)
    peer = versus.peer_command(arguments.vs, path)
    ours = child.our_command(path, _options(arguments, budgets))
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
    short = told.read_bandwidth is None and told.multiply_add_rate is not None
    more = "; too little of the granted memory is left to measure how fast it reads" if short else ""
    return (" and ".join(does) or "not measured") + more


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
