"""`millstream import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.running import Program, output, refusal
from tests.tiny_chat import write_tiny_chat


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "other é" / "labs" / "Tiny-GGUF" / "tiny-q8_0.gguf"
    path.parent.mkdir(parents=True)
    write_tiny_chat(path)
    return path


def test_a_file_is_used_where_it_is_and_removing_it_leaves_it_there(
    inside: Program, models: Path, elsewhere: Path
) -> None:
    made = json.loads(output(inside("import", str(elsewhere), "--json")))
    assert (made["path"], made["linked"]) == (str(elsewhere), True)
    (listed,) = json.loads(output(inside("list", "--json")))["models"]
    assert (listed["name"], listed["state"], listed["linked"]) == (made["name"], "ready", True)
    assert "already" in refusal(inside("import", str(elsewhere)))
    kept = elsewhere.read_bytes()
    elsewhere.rename(elsewhere.with_suffix(".away"))
    done = inside("list")
    assert done.stdout.split()[-1] == "missing" and str(elsewhere) in done.stderr
    elsewhere.with_suffix(".away").rename(elsewhere)
    done = inside("remove", made["name"], "--yes")
    assert done.returncode == 0 and str(elsewhere) in done.stderr
    assert elsewhere.read_bytes() == kept and json.loads(output(inside("list", "--json")))["models"] == []


def test_a_copy_is_verified_and_removed_like_any_other(inside: Program, models: Path, elsewhere: Path) -> None:
    done = inside("import", str(elsewhere), "--copy")
    assert (done.returncode, done.stdout) == (0, "") and "millstream chat" in done.stderr
    (listed,) = json.loads(output(inside("list", "--json")))["models"]
    assert not listed["linked"] and Path(listed["path"]).is_relative_to(models)
    assert json.loads(output(inside("verify", listed["name"], "--json")))["damaged"] == []
    with Path(listed["path"]).open("r+b") as file:
        file.write(b"nonsense")
    assert "cannot be repaired" in refusal(inside("verify", listed["name"], "--repair"))
    assert Path(listed["path"]).exists()
    assert inside("remove", listed["name"], "--yes").returncode == 0
    assert not list(models.rglob("*.gguf")) and elsewhere.exists()


def test_the_models_of_another_program_are_listed_and_imported_by_name(
    inside: Program, home: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    path = home / ".lmstudio" / "models" / "labs" / "Tiny-GGUF" / "tiny-q8_0.gguf"
    path.parent.mkdir(parents=True)
    write_tiny_chat(path)
    (found,) = json.loads(output(inside("import", "--from", "lmstudio", "--json")))["models"]
    assert found["path"] == str(path) and found["problem"] == ""
    assert output(inside("import", "--from", "lmstudio")).split()[0] == found["name"]
    assert "It has: " in refusal(inside("import", "other", "--from", "lmstudio"))
    made = json.loads(output(inside("import", found["name"], "--from", "lmstudio", "--json")))
    assert made["linked"] and made["path"] == str(path)


def test_a_mistake_gets_one_sentence(inside: Program, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    for arguments in ((), ("--from", "nobody"), (str(tmp_path / "nothing"),), (str(tmp_path / "bad.gguf"),)):
        refusal(inside("import", *arguments))
