from __future__ import annotations

from pathlib import Path

import pytest

from bench.forecast import Round, main, missed, row
from tests.tiny_chat import write_tiny_chat


def test_a_row_has_the_medians_and_all_rounds() -> None:
    rounds = [Round(1.1, 0.5, False), Round(1.3, 0.7, False), Round(0.9, 0.9, False)]
    assert row("a|b.gguf", "auto", rounds) == (
        "| a\\|b.gguf | auto | resident | 1.10 (1.10 1.30 0.90) | 0.70 (0.50 0.70 0.90) |"
    )
    assert "| 64MB | streamed |" in row("x", "64MB", [Round(1, 1, True)])


def test_the_aim_is_missed_by_a_median_alone() -> None:
    assert not missed([Round(0.76, 1.24, True), Round(9, 1, True), Round(0.8, 0.1, True)])
    assert missed([Round(1.26, 1, True)]) and missed([Round(1, 0.74, True)])


def test_each_file_is_planned_and_measured_under_each_budget(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(folder))
    path = write_tiny_chat(folder / "tiny.gguf", ffn=4096)
    sizes = ("--tokens", "2", "--prompt-tokens", "20", "--threads", "1")
    assert main([str(path), "--ram", "auto,1.2MB", "--rounds", "1", *sizes]) in (0, 1)
    *_, resident, streamed = capsys.readouterr().out.splitlines()
    assert resident.startswith("| tiny.gguf | auto | resident | ")
    assert streamed.startswith("| tiny.gguf | 1.2MB | streamed | ")
    with pytest.raises(SystemExit, match=r"plan of tiny\.gguf failed with exit status 2: .*grant more memory"):
        main([str(path), "--ram", "1kB", "--rounds", "1", *sizes])
