"""`millstream models`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.app.running import Program, output, shell


def test_models_lists_the_library(millstream: Program) -> None:
    assert output(millstream("models")).split() == ["tiny", "107.7", "kB"]


def test_models_gives_one_json_object(millstream: Program, library: Path) -> None:
    path = library / "models" / "tiny.gguf"
    listed = [{"name": "tiny", "path": str(path), "bytes": path.stat().st_size}]
    assert json.loads(output(millstream("models", "--json"))) == {"folder": str(path.parent), "models": listed}


def test_an_empty_library_says_how_the_first_model_comes(tmp_path: Path) -> None:
    done = shell("M models", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "models") in done.stderr and "millstream run starter" in done.stderr
    assert json.loads(output(shell("M models --json", home=tmp_path)))["models"] == []
