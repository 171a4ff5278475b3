"""`millstream bench`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.app.running import Program, output, refusal


def test_bench_tells_its_fields(millstream: Program) -> None:
    command = ("bench", "tiny", "--prompt-tokens", "20", "--tokens", "3", "--threads", "1")
    told = json.loads(output(millstream(*command, "--json")))
    rates = {"prefill_tok_s", "decode_short_tok_s", "decode_long_tok_s"}
    shares = {"prefill_multiply_add_share", "decode_short_bandwidth_share", "decode_long_bandwidth_share"}
    floors = {"read_bandwidth", "multiply_add_rate"}
    counts = {
        *("threads", "peak_memory_bytes", "bytes_read", "multiply_adds_per_token", "bytes_per_token"),
        *("decode_short_bytes_per_token", "decode_long_bytes_per_token"),
    }
    assert {"model", "fingerprint"} | rates | shares | floors | counts == set(told)
    assert told["threads"] == 1
    assert all(told[number] > 0 for number in rates | floors | counts)
    shown = output(millstream(*command))
    assert shown.count("tokens/s") == 3
    assert shown.count("% of the memory's bandwidth") == 2 and shown.count("% of the cores' multiply-adds") == 1


def test_bench_beside_a_peer_tells_ratios(millstream: Program, tmp_path: Path) -> None:
    peer = tmp_path / "peer.py"
    told = {"prefill_tok_s": 0.001, "decode_short_tok_s": 1e9, "decode_long_tok_s": 5}
    peer.write_text(f"print({json.dumps(told)!r})")
    command = ("bench", "tiny", "--prompt-tokens", "20", "--tokens", "3", "--rounds", "1", "--threads", "1")
    shown = output(millstream(*command, "--vs", f'"{sys.executable}" "{peer}"')).splitlines()
    assert [line.split("  ")[0] for line in shown] == ["model", "peer", "prefill", "decode", "decode, long", "machine"]
    assert "against 5.0 tokens/s" in shown[4]
    assert float(shown[2].split()[1]) > 1 > float(shown[3].split()[1])


def test_bench_looks_at_the_file_before_it_runs_the_peer(millstream: Program, tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    told = refusal(millstream("bench", str(tmp_path / "empty.gguf"), "--vs", f"touch {tmp_path / 'ran'}"))
    assert "empty.gguf is empty" in told
    assert not (tmp_path / "ran").exists()
