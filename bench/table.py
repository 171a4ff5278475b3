"""Our speed beside a peer's for several model files, as a Markdown table, each figure with what is aimed at.

    python -m bench.table "python peer.py {model} --threads 2" starter some.Q8_0.gguf some.Q4_K_M.gguf --threads 2

Each file is measured as `millstream bench MODEL --vs PEER` does it. Which aims are a file's, its name tells.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.child import our_command
from app.console import find_model
from app.versus import Compared, Comparison, compare, peer_command, summary
from engine import MillstreamError
from engine.checks import check_count


@dataclass(frozen=True)
class Aim:
    """The least ratio to the peer, and the least share of the floor."""

    ratio: float
    share: float


AIMS: dict[str, tuple[Aim, Aim, Aim]] = {
    "Q4_1": (Aim(1.5, 0.85), Aim(1.6, 0.85), Aim(2.2, 0.7)),
    "Q8_0": (Aim(1.15, 0.88), Aim(1.2, 0.85), Aim(1.5, 0.7)),
    "Q4_K_M": (Aim(1.2, 0.85), Aim(1.25, 0.85), Aim(1.3, 0.7)),
}
"""By the packing in a file's name: decoding at short context, after the prompt, and prefill."""

HEADER = "| file | decode, short | decode after {prompt} | prefill {prompt} |\n|---|---|---|---|"
LEGEND = """
Our speed over the peer's, the median of {rounds} rounds, and our share of the floor: of the memory's bandwidth in
decoding, of the cores' int16 multiply-adds in prefill. In brackets the least that is aimed at. The same columns in
tokens a second:
"""


def row(path: Path, compared: Comparison) -> str:
    """One file's line of the table."""
    name = path.name.replace("|", "\\|")
    aims = next((aims for packing, aims in AIMS.items() if packing in path.name.upper()), (None,) * 3)
    return " | ".join((f"| {name}", *map(cell, _columns(compared), aims))) + " |"


def cell(figure: Compared, aim: Aim | None) -> str:
    """The ratio and the share, each with its aim."""
    ratio, share = f"{figure.ratio:.2f} ×", "" if figure.share is None else f", {100 * figure.share:.0f} %"
    if aim is not None:
        ratio += f" (≥ {aim.ratio:g})"
        share = share and f"{share} (≥ {100 * aim.share:.0f})"
    return ratio + share


def note(path: Path, compared: Comparison) -> str:
    """The speeds of both sides, and the floors as they were measured beside them."""
    speeds = ", ".join(f"{figure.ours:.1f} against {figure.peer:.1f}" for figure in _columns(compared))
    floors = f"{(compared.read_bandwidth or 0) / 1e9:.1f} GB/s, {(compared.multiply_add_rate or 0) / 1e9:.1f} G/s"
    return f"* {path.name}: {speeds}; floors {floors}"


def _columns(compared: Comparison) -> tuple[Compared, Compared, Compared]:
    return compared.decode_short_tok_s, compared.decode_long_tok_s, compared.prefill_tok_s


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", help="the peer's command, with {model} where the file's path belongs")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a file, a name in the library, or starter")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--limit", type=int, default=3600, help="seconds that one run may take")
    arguments = parser.parse_args(argv)
    own = ["--threads", str(arguments.threads), "--tokens", str(arguments.tokens)]
    own += ["--prompt-tokens", str(arguments.prompt_tokens)]
    notes = []
    try:
        for name in ("threads", "rounds", "prompt_tokens", "tokens", "limit"):
            check_count(f"--{name.replace('_', '-')}", getattr(arguments, name))
        paths = [find_model(model).absolute() for model in arguments.models]
        print(HEADER.format(prompt=arguments.prompt_tokens), flush=True)
        for path in paths:
            ours, peer = our_command(path, own), peer_command(arguments.peer, path)
            compared = summary(compare(ours, peer, rounds=arguments.rounds, limit=arguments.limit))
            print(row(path, compared), flush=True)
            notes.append(note(path, compared))
    except MillstreamError as error:
        raise SystemExit(f"bench.table: {error}") from error
    print(LEGEND.format(rounds=arguments.rounds))
    print("\n".join(notes))


if __name__ == "__main__":
    main()
