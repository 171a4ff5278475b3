"""`millstream bench`: how fast a model runs on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from app import options
from app.console import open_engine, write
from engine import human_bytes
from engine.checks import check_count

NAME = "bench"
SUMMARY = "measure how fast a model runs here"


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(),)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="length of the prefill (512)")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="steps of each decoding run (128)")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    budgets = options.budgets(arguments)
    check_count("--prompt-tokens", arguments.prompt_tokens)
    check_count("--tokens", arguments.tokens)
    with open_engine(arguments.model, budgets) as engine:
        measured = engine.measure(arguments.prompt_tokens, arguments.tokens)
        path = engine.info.path
    if arguments.json:
        numbers = {name: round(value, 2) for name, value in dataclasses.asdict(measured).items()}
        write(json.dumps({"model": path, **numbers}, ensure_ascii=False) + "\n")
        return 0
    rows = {
        "model": path,
        "threads": str(measured.threads),
        "prefill": f"{measured.prefill_tok_s:.1f} tokens/s over {arguments.prompt_tokens} tokens",
        "decode": f"{measured.decode_short_tok_s:.1f} tokens/s at short context",
        "decode, long": f"{measured.decode_long_tok_s:.1f} tokens/s after {arguments.prompt_tokens} tokens",
        "peak memory": human_bytes(measured.peak_memory_bytes),
        "read": f"{human_bytes(measured.bytes_read)} from disk",
        "a token": f"passes over {human_bytes(measured.bytes_per_token)} of weights",
    }
    write("".join(f"{key:<14}{value}\n" for key, value in rows.items()))
    return 0
