#!/usr/bin/env python3
"""Time neurostream on a GGUF file, on the CPU, for side-by-side ratios: `millstream bench --vs` reads what it prints.

Needs an environment of its own: `pip install torch==2.13.0 neurostream==0.2.1`. Prints one JSON object.

    python neurostream_peer.py MODEL.gguf                       all weights in memory
    python neurostream_peer.py MODEL.gguf --ram-budget 0 --mem-budget 256MB --cold

Evaluations alone are timed: the model's own `forward`, without its sampling and its text. `--cold` has the system
forget the file's pages before each step, outside of what is timed: it reads through the page cache, so that a file that
fits into free memory would come from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from neurostream import NeuroStream
from neurostream.api import parse_size
from neurostream.model.qwen3 import KVCache

TEXT = "Once upon a time there was a little mill by the river. "
"""Eight tokens at least, as in the other peers."""
SHORT = 4
"""Tokens of context from which decoding at short context starts."""


class Timed:
    """Steps of the model with their seconds, and what the steps read and waited for."""

    def __init__(self, stream: NeuroStream, path: Path, cold: bool) -> None:
        self.stream = stream
        self.path = path
        self.cold = cold
        self.cache = KVCache(stream.cfg.n_layer)

    def forward(self, tokens: list[int]) -> tuple[float, int]:
        """The next positions: → seconds, and the likeliest token after them."""
        if self.cold:
            with self.path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        with torch.no_grad():
            logits = self.stream.model.forward(torch.tensor(tokens), self.cache, start_pos=self.cache.length)
        return time.perf_counter() - started, int(logits[-1].argmax())

    def prefill(self, tokens: list[int]) -> float:
        """An empty cache filled with these: → seconds."""
        self.cache = KVCache(self.stream.cfg.n_layer)
        return self.forward(tokens)[0]

    def decode(self, token: int, n: int) -> dict[str, float]:
        """Greedy steps: → tokens a second, bytes read a token, and the share of the time that was spent waiting."""
        reads = self.stream.source.stats
        before, waited, spent = reads.bytes_read, reads.stall_seconds, 0.0
        for _ in range(n):
            seconds, token = self.forward([token])
            spent += seconds
        stall = (reads.stall_seconds - waited) / spent
        return {"tok_s": n / spent, "read_per_token": (reads.bytes_read - before) / n, "stall_share": stall}


def peak_memory() -> int:
    """Bytes, of the whole process."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--ram-budget", help="weights that stay in memory (default: all)")
    parser.add_argument("--mem-budget", default="1GB", help="its buffers for blocks on their way from disk")
    parser.add_argument("--block-rows", type=int, default=4096, help="as its command line has it")
    parser.add_argument("--workers", type=int, default=16, help="as its command line has it")
    parser.add_argument("--cold", action="store_true", help="drop the file's pages before each step")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    resident = parse_size(arguments.ram_budget) if arguments.ram_budget else 2 * arguments.model.stat().st_size
    with NeuroStream.load(
        arguments.model,
        device="cpu",
        ram_budget=resident,
        mem_budget=arguments.mem_budget,
        block_rows=arguments.block_rows,
        n_workers=arguments.workers,
    ) as stream:
        prompt = stream.tokenizer.encode(TEXT * (arguments.prompt_tokens // 8 + 1))[: arguments.prompt_tokens]
        timed = Timed(stream, arguments.model, arguments.cold)
        timed.prefill(prompt[:SHORT])
        timed.decode(prompt[-1], 1)
        prefill = timed.prefill(prompt)
        long = timed.decode(prompt[-1], arguments.tokens)
        timed.prefill(prompt[:SHORT])
        short = timed.decode(prompt[-1], arguments.tokens)
        print(
            json.dumps(
                {
                    "peer": "neurostream",
                    "model": str(arguments.model),
                    "threads": arguments.threads,
                    "prefill_tok_s": round(len(prompt) / prefill, 4),
                    "decode_long_tok_s": round(long["tok_s"], 4),
                    "decode_short_tok_s": round(short["tok_s"], 4),
                    "read_per_token": round(short["read_per_token"]),
                    "stall_share": round(short["stall_share"], 4),
                    "arena_peak": stream.arena.stats.peak_bytes,
                    "peak_memory_bytes": peak_memory(),
                }
            )
        )


if __name__ == "__main__":
    main()
