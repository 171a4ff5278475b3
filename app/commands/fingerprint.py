"""`millstream fingerprint`: a model's answer as a hash, to compare machines and builds by."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from app import options
from app.console import open_engine, write
from engine.checks import check_count

NAME = "fingerprint"
SUMMARY = "hash the bits of every logit of a prompt and its greedy continuation"


def parents() -> Sequence[argparse.ArgumentParser]:
    return options.model(), options.prompt()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", type=int, required=True, metavar="N", help="new tokens to take, greedily")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    budgets = options.budgets(arguments)
    check_count("-n", arguments.n)
    prompt = options.prompt_text(arguments)
    with open_engine(arguments.model, budgets, arguments.mmproj) as engine:
        result = engine.fingerprint(prompt, arguments.n)
    if arguments.json:
        write(json.dumps({"tokens": result.tokens, "sha256": result.sha256}) + "\n")
    else:
        write(f"{result.sha256}\n{' '.join(map(str, result.tokens))}\n")
    return 0
