from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from app.versus import Compared, Comparison
from bench.table import main, row
from tests.tiny_chat import write_tiny_chat


def comparison(share: float | None) -> Comparison:
    one, two, three = (Compared(10, 5, ratio, (ratio,), share) for ratio in (1.234, 2, 3))
    return Comparison(1, one, two, three, 2e10, 9e10)


def test_a_row_sets_each_aim_beside_what_was_reached() -> None:
    assert (
        row(Path("/models/x.q8_0.gguf"), comparison(0.876))
        == "| x.q8_0.gguf | 1.23 × (≥ 1.15), 88 % (≥ 88) | 2.00 × (≥ 1.2), 88 % (≥ 85) | 3.00 × (≥ 1.5), 88 % (≥ 70) |"
    )
    assert (
        row(Path("x.Q4_K_M.gguf"), comparison(None))
        == "| x.Q4_K_M.gguf | 1.23 × (≥ 1.2) | 2.00 × (≥ 1.25) | 3.00 × (≥ 1.3) |"
    )
    assert row(Path("a|b.gguf"), comparison(0.5)) == "| a\\|b.gguf | 1.23 ×, 50 % | 2.00 ×, 50 % | 3.00 ×, 50 % |"


def test_the_table_has_a_row_for_each_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [write_tiny_chat(folder / name) for name in ("one.Q4_1.gguf", "two.gguf")]
    peer = folder / "peer.py"
    peer.write_text(f"print({json.dumps({'prefill_tok_s': 1, 'decode_short_tok_s': 1, 'decode_long_tok_s': 1})!r})")
    sizes = ("--rounds", "1", "--tokens", "2", "--prompt-tokens", "20", "--threads", "1")
    main([f'"{sys.executable}" "{peer}" {{model}}', *map(str, models), *sizes])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| file | decode, short | decode after 20 | prefill 20 |"
    table = [line.split(" | ") for line in lines if line.startswith("|")][2:]
    assert [len(cells) for cells in table] == [4, 4]
    assert [cells[0] for cells in table] == ["| one.Q4_1.gguf", "| two.gguf"]
    assert "(≥ 2.2)" in table[0][3] and "≥" not in table[1][3]
    assert [line.split(":")[0] for line in lines if line.startswith("* ")] == ["* one.Q4_1.gguf", "* two.gguf"]


def test_a_peer_that_cannot_be_used_ends_it_with_a_sentence(folder: Path) -> None:
    model = write_tiny_chat(folder / "one.gguf")
    with pytest.raises(SystemExit, match=r"^bench\.table: The peer's command does not start"):
        main(["no-such-program-at-all {model}", str(model)])
