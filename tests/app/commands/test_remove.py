"""`millstream remove`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.app.commands.conftest import REPOSITORY
from tests.app.running import POSIX, Program, Terminal, output, refusal
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import model_bytes


def test_a_pipe_has_to_say_yes(hub: HubServer, inside: Program, models: Path) -> None:
    inside("pull", f"{REPOSITORY}:Q8_0", "--text-only")
    assert "--yes" in refusal(inside("remove", "Tiny-Q8_0"))
    assert (models / REPOSITORY / "Tiny-Q8_0").exists()
    told = json.loads(output(inside("remove", "Tiny-Q8_0", "--yes", "--json")))
    assert told["name"] == f"{REPOSITORY}/Tiny-Q8_0" and told["freed"] > 2_097_000
    assert list(models.glob("**/*.gguf")) == [] and not (models / "labs").exists()
    assert "no model “Tiny-Q8_0”" in refusal(inside("remove", "Tiny-Q8_0", "--yes"))


def test_a_tower_that_another_model_shares_is_not_counted(hub: HubServer, inside: Program, models: Path) -> None:
    inside("pull", f"{REPOSITORY}:Q8_0")
    inside("pull", f"{REPOSITORY}:Q4_K_M")
    towers = list(models.glob("labs/*/*/mmproj-Tiny-F16.gguf"))
    assert len(towers) == 2 and towers[0].samefile(towers[1])
    folder = models / REPOSITORY / "Tiny-Q4_K_M"
    own = sum(path.stat().st_size for path in folder.iterdir() if "mmproj" not in path.name)
    assert json.loads(output(inside("remove", "Tiny-Q4_K_M", "--yes", "--json")))["freed"] == own
    assert [path.parent.name for path in models.glob("labs/*/*/mmproj-Tiny-F16.gguf")] == ["Tiny-Q8_0"]
    assert output(inside("verify", "Tiny-Q8_0", "--json"))
    folder = models / REPOSITORY / "Tiny-Q8_0"
    all_of_it = sum(path.stat().st_size for path in folder.iterdir())
    assert json.loads(output(inside("remove", "Tiny-Q8_0", "--yes", "--json")))["freed"] == all_of_it


@POSIX
def test_a_person_is_asked(home: Path, models: Path, tmp_path: Path) -> None:
    models.mkdir()
    (models / "own.gguf").write_bytes(model_bytes(tmp_path))
    for answer, there in (("n", True), ("", True), ("y", False)):
        with Terminal(home, "remove", "own") as terminal:
            terminal.until("Delete own from the library, which frees 1.0 MB? [y/N] ")
            terminal.type(f"{answer}\r")
            terminal.until("Nothing was deleted." if there else "own is deleted: 1.0 MB are free again.")
            assert terminal.process.wait() == 0
        assert (models / "own.gguf").exists() == there
