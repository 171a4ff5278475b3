"""`millstream bench`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.app.running import Program, output, refusal
from tests.outside import linux, watch
from tests.outside import millstream as ours
from tests.tiny_chat import write_tiny_chat


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
    memory = {"ram", "read_per_token", "stall_share", "hit_rate", "expert_hit_rate", "arena_peak", "memory"}
    assert {"model", "fingerprint"} | rates | shares | floors | counts | memory == set(told)
    assert told["read_per_token"] == told["arena_peak"] == 0, "the model fits into memory"
    assert told["memory"]["weights"] > 0 and told["ram"] > told["memory"]["weights"]
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


def test_its_context_is_what_is_measured_unless_it_is_named(millstream: Program) -> None:
    command = ("bench", "tiny", "--prompt-tokens", "60", "--tokens", "30", "--threads", "1", "--json")
    least, named = (json.loads(output(millstream(*command, *more))) for more in ((), ("--context", "200")))
    assert least["memory"]["kv"] < named["memory"]["kv"]
    assert least["fingerprint"] == named["fingerprint"]


SHORT = ("--prompt-tokens", "20", "--tokens", "3", "--threads", "1")


@pytest.fixture
def mill(folder: Path) -> Path:
    """A model of 13 MB."""
    return write_tiny_chat(folder / "mill.gguf", ffn=4096, layers=16)


def test_what_a_token_reads_is_told_as_plan_tells_it(millstream: Program, mill: Path) -> None:
    budgets = ("--ram", "6MB", "--context", "64", "--threads", "1")
    measured = output(millstream("bench", str(mill), *SHORT, *budgets))
    planned = output(millstream("plan", str(mill), *budgets))
    form = r" a token passes over [\d.]+ MB of weights, reads [\d.]+ MB from disk "
    for told in (measured, planned):
        assert re.search(form, " ".join(told.split()))
    assert re.search(r"^waiting +\d+ % of a step for the disk$", measured, re.MULTILINE)


def test_budgets_are_swept_with_one_fingerprint(millstream: Program, mill: Path) -> None:
    shown = output(millstream("bench", str(mill), *SHORT, "--ram", "6MB,auto,9MB", "--chunk", "16")).splitlines()
    assert shown[-1] == "All fingerprints agree."
    rows = [line.split() for line in shown[2:-1]]
    assert [row[:2] for row in (rows[0], rows[2])] == [["6.00", "MB"], ["9.00", "MB"]]
    assert len({row[-1] for row in rows}) == 1 and len(rows[0][-1]) == 12


def test_a_sweep_gives_a_list_of_what_each_measurement_tells(millstream: Program, mill: Path) -> None:
    small, large = json.loads(output(millstream("bench", str(mill), *SHORT, "--ram", "6MB,1GB", "--json")))
    assert (small["ram"], large["ram"]) == (6_000_000, 1_000_000_000)
    assert small["fingerprint"] == large["fingerprint"]
    assert small["read_per_token"] > 0 == large["read_per_token"]
    assert small["arena_peak"] > 0 and small["hit_rate"] is not None
    total, resident = large["memory"]["weights"], small["memory"]["weights"]
    assert small["read_per_token"] == pytest.approx(total - resident, rel=0.05)


def test_a_budget_that_is_too_small_has_its_sentence_and_the_others_are_measured(
    millstream: Program, mill: Path
) -> None:
    cache = ("--context", "256", "--kv", "f32")  # which alone takes 1 MB
    done = millstream("bench", str(mill), *SHORT, *cache, "--ram", "1MB,1GB", "--json")
    assert (done.returncode, done.stderr) == (2, "")
    small, large = json.loads(done.stdout)
    assert small["ram"] == 1_000_000 and "at least" in small["error"]
    assert large["fingerprint"]


def test_threads_and_blocks_change_no_fingerprint(millstream: Program, mill: Path) -> None:
    command = ("bench", str(mill), "--prompt-tokens", "20", "--tokens", "3", "--ram", "6MB", "--json")
    few, many = (
        json.loads(output(millstream(*command, *more)))
        for more in (("--threads", "1"), ("--threads", "2", "--block-rows", "500", "--io-threads", "3"))
    )
    assert few["read_per_token"] > 0 < many["read_per_token"]
    assert few["fingerprint"] == many["fingerprint"]


def test_a_sweep_is_refused_beside_a_peer_and_where_a_size_is_wrong(millstream: Program) -> None:
    assert "name a single size" in refusal(millstream("bench", "tiny", "--ram", "1GB,2GB", "--vs", "peer"))
    for sizes in ("1GB,", "1GB,GB", ",", "1GB;2GB", "1GB,0"):
        refusal(millstream("bench", "tiny", "--ram", sizes))


@linux
@pytest.mark.parametrize("ram", [192, 280])
def test_the_whole_process_keeps_to_what_was_granted_where_the_machine_itself_is_measured(
    starter: Path, ram: int
) -> None:
    """Which takes memory of its own, or is left away where there is none to take: 192 MB leave too little."""
    granted = ("--ram", f"{ram}MB", "--context", "640", "--threads", "2", "--json")
    plan = watch(ours("plan", starter, *granted), starter).json()
    measured = watch(ours("bench", starter, *granted, "--prompt-tokens", "512", "--tokens", "4"), starter)
    assert measured.resident <= plan["ram"] + plan["overhead"]
    told = measured.json()
    assert told["multiply_add_rate"] > 0 and (told["read_bandwidth"] is None) == (ram == 192)
