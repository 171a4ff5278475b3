"""`millstream verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.app.commands.conftest import REPOSITORY
from tests.app.running import Program, output, refusal
from tests.hub_faults import WrongBytes
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import model_bytes


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_file_is_found_and_repaired(hub: HubServer, inside: Program, models: Path) -> None:
    inside("pull", REPOSITORY)
    done = inside("verify", "Tiny-Q4_K_M")
    assert (done.returncode, done.stdout) == (0, "") and "what it was when it came" in done.stderr
    flip(models / REPOSITORY / "Tiny-Q4_K_M" / "Tiny-Q4_K_M.gguf")
    assert "millstream verify" in refusal(inside("verify", "Tiny-Q4_K_M"))
    done = inside("verify", "Tiny-Q4_K_M", "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["damaged"] == ["Tiny-Q4_K_M.gguf"]
    for command in (("run", "Tiny-Q4_K_M", "-p", "x"), ("plan", "Tiny-Q4_K_M"), ("fit", "Tiny-Q4_K_M")):
        assert "`millstream verify Tiny-Q4_K_M --repair`" in refusal(inside(*command))
    fetched = hub.fetched(f"{REPOSITORY}/mmproj-Tiny-F16.gguf")
    told = json.loads(output(inside("verify", "Tiny-Q4_K_M", "--repair", "--json")))
    assert told == {"name": f"{REPOSITORY}/Tiny-Q4_K_M", "damaged": ["Tiny-Q4_K_M.gguf"], "repaired": True}
    assert hub.fetched(f"{REPOSITORY}/mmproj-Tiny-F16.gguf") == fetched
    assert json.loads(output(inside("verify", "Tiny-Q4_K_M", "--json")))["damaged"] == []
    assert [model["state"] for model in json.loads(output(inside("list", "--json")))["models"]] == ["ready"]


def test_a_repair_that_is_removed_leaves_the_model_in_the_library(
    hub: HubServer, inside: Program, models: Path
) -> None:
    inside("pull", REPOSITORY)
    flip(models / REPOSITORY / "Tiny-Q4_K_M" / "Tiny-Q4_K_M.gguf")
    hub.fault(f"{REPOSITORY}/Tiny-Q4_K_M.gguf", WrongBytes(), times=2)
    done = inside("verify", "Tiny-Q4_K_M", "--repair")
    assert done.returncode == 2 and "is not the file that" in done.stderr
    assert json.loads(output(inside("list", "--json")))["models"] == []
    removed = inside("downloads", "--remove", "Tiny-Q4_K_M")
    assert removed.returncode == 0 and "The repair of Tiny-Q4_K_M is stopped" in removed.stderr
    assert [model["state"] for model in json.loads(output(inside("list", "--json")))["models"]] == ["damaged"]
    assert json.loads(output(inside("verify", "Tiny-Q4_K_M", "--repair", "--json")))["repaired"]


def test_the_starter_is_verified_by_its_hash(starter: Path, inside: Program, models: Path) -> None:
    assert "millstream pull starter" in refusal(inside("verify", "starter"))
    models.mkdir()
    path = models / starter.name
    shutil.copy(starter, path)
    assert json.loads(output(inside("verify", "starter", "--json")))["damaged"] == []
    flip(path)
    assert "--repair" in refusal(inside("verify", "starter"))


def test_what_nobody_knows_the_origin_of_cannot_be_verified(inside: Program, models: Path, tmp_path: Path) -> None:
    models.mkdir()
    (models / "own.gguf").write_bytes(model_bytes(tmp_path))
    assert "Nothing is known" in refusal(inside("verify", "own"))
    assert "no model “other”" in refusal(inside("verify", "other"))
