#!/usr/bin/env python3
"""Run two benchmark commands in turn and report medians and ratios, so that a drifting machine favours neither.

Each command prints one JSON object last, with `prefill_tok_s`, `decode_short_tok_s` and `decode_long_tok_s`.

    python bench/versus.py "millstream bench starter --threads 2 --json" "python peer.py MODEL.gguf --threads 2"
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess

FIELDS = ("decode_short_tok_s", "decode_long_tok_s", "prefill_tok_s")


def measure(command: str) -> dict[str, float]:
    """The figures of one run. Raises CalledProcessError where it fails, ValueError where it prints no JSON."""
    out = subprocess.run(shlex.split(command), check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(out.strip().splitlines()[-1])
    return {field: float(figures[field]) for field in FIELDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours")
    parser.add_argument("peer")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    runs = [(measure(arguments.ours), measure(arguments.peer)) for _ in range(arguments.rounds)]
    report = {}
    for field in FIELDS:
        ratios = [ours[field] / peer[field] for ours, peer in runs]
        report[field] = {
            "ours": statistics.median(ours[field] for ours, _ in runs),
            "peer": statistics.median(peer[field] for _, peer in runs),
            "ratio": round(statistics.median(ratios), 2),
            "ratios": [round(ratio, 2) for ratio in ratios],
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
