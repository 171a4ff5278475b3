"""`millstream list`, which is also called `models`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.commands.conftest import REPOSITORY
from tests.app.running import Program, output, shell
from tests.hub_server import HubServer


@pytest.mark.parametrize("name", ["list", "models"])
def test_it_lists_the_library(millstream: Program, name: str) -> None:
    assert output(millstream(name)).split() == ["tiny", "107.7", "kB"]


def test_it_gives_one_json_object(millstream: Program, library: Path) -> None:
    path = library / "models" / "tiny.gguf"
    told = json.loads(output(millstream("list", "--json")))
    assert (told["folder"], told["state"]) == (str(path.parent), "present")
    (model,) = told["models"]
    expected = {"name": "tiny", "path": str(path), "bytes": path.stat().st_size, "state": "ready", "problem": ""}
    assert expected.items() <= model.items()


def test_an_empty_library_says_how_the_first_model_comes(tmp_path: Path) -> None:
    done = shell("M list", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "models") in done.stderr and "millstream pull starter" in done.stderr
    assert json.loads(output(shell("M list --json", home=tmp_path)))["models"] == []


def test_a_damaged_model_is_told_with_a_sentence(hub: HubServer, inside: Program, models: Path) -> None:
    inside("pull", f"{REPOSITORY}:Q8_0")
    file = models / REPOSITORY / "Tiny-Q8_0" / "Tiny-Q8_0.gguf"
    with file.open("r+b") as cut:
        cut.truncate(1000)
    done = inside("list")
    assert done.returncode == 0 and done.stdout.split()[-1] == "damaged" and "Tiny-Q8_0.gguf" in done.stderr
    (model,) = json.loads(output(inside("list", "--json")))["models"]
    assert (model["name"], model["state"]) == (f"{REPOSITORY}/Tiny-Q8_0", "damaged") and "repair" in model["problem"]
    assert (model["repository"], model["licence"]) == (REPOSITORY, "apache-2.0")
    assert inside("run", "Tiny-Q8_0", "-p", "a").returncode == 2
