"""`millstream fit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.running import POSIX, Program, Terminal, output, refusal
from tests.engine.models.families import FAMILIES
from tests.hub_faults import Status
from tests.hub_server import HubServer
from tests.registry.remote import ID, fetched, hub_server, publish
from tests.tiny_chat import write_tiny_chat


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with hub_server(monkeypatch) as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.memory.speeds.SECONDS", 0.001)
    monkeypatch.setattr("engine.memory.machine.measure_drive.__defaults__", (0.01, None))
    monkeypatch.setattr("registry.probe.reading.ENOUGH", 4 << 20)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, ffn in (("tiny-Q4_K_M.gguf", 512), ("tiny-Q8_0.gguf", 4096)):
        write_tiny_chat(folder / name, ffn=ffn)
    return folder


def test_a_model_of_the_library_is_told_in_words(millstream: Program) -> None:
    told = output(millstream("fit", "tiny"))
    assert [line.split("  ")[0] for line in told.splitlines()] == [
        "model", "fit", "memory", "speed", "first token", "context"
    ]  # fmt: skip
    assert "fits memory" in told and "tokens/s" in told and "256 tokens, cached in f16" in told


def test_json_has_the_plan_and_the_budgets(millstream: Program, library: Path) -> None:
    told = json.loads(output(millstream("fit", "tiny", "--json")))
    assert told["model"] == str(library / "models" / "tiny.gguf")
    assert (told["label"], told["words"], told["why"]) == ("memory", "fits memory", "")
    assert told["tok_s"] == told["plan"]["tok_s"] > 0 and told["budgets"]["context"] == told["plan"]["context"] == 256


def test_what_cannot_run_ends_with_code_2_and_says_why(millstream: Program) -> None:
    done = millstream("fit", "tiny", "--ram", "10kB")
    assert done.returncode == 2 and done.stderr == ""
    assert "cannot run here" in done.stdout and "needs at least" in done.stdout
    told = json.loads(millstream("fit", "tiny", "--ram", "10kB", "--json").stdout)
    assert told["label"] == "cannot" and told["plan"] is None and told["words"].startswith("cannot run here: ")
    assert "there is no card" in " ".join(millstream("fit", "tiny", "--vram", "1GB").stdout.split())


def test_a_repository_is_told_in_a_table(millstream: Program, hub: HubServer, files: Path) -> None:
    publish(hub, files)
    heading, *rows = output(millstream("fit", ID)).splitlines()
    assert heading.split() == ["download", "fit", "speed", "first", "token", "context"]
    assert [row.split()[0] for row in rows] == ["Q4_K_M", "Q8_0"]
    assert all("fits memory" in row and "tok/s" in row and row.endswith("256") for row in rows)
    told = json.loads(output(millstream("fit", ID, "--json")))
    assert told["revision"] == hub.commit(ID) and [one["name"] for one in told["offers"]] == ["Q4_K_M", "Q8_0"]
    assert [one["bytes"] for one in told["offers"]] == sorted(path.stat().st_size for path in files.iterdir())


@pytest.mark.parametrize("part", ["Q8_0", "q8_0", "tiny-Q8_0.gguf"])
def test_one_of_a_repository_is_fitted_without_the_others(
    millstream: Program, hub: HubServer, files: Path, part: str
) -> None:
    publish(hub, files)
    told = json.loads(output(millstream("fit", f"{ID}:{part}", "--json")))
    assert (told["repository"], told["name"], told["label"]) == (ID, "Q8_0", "memory")
    # The same from what was kept, if an earlier run of these tests had the same bytes: the others are never fetched.
    assert fetched(hub, "tiny-Q4_K_M.gguf") == 0
    details = output(millstream("fit", f"{ID}:{part}"))
    assert f"{ID}:Q8_0" in details and "to download" in details


def test_streaming_is_told_with_its_speed(millstream: Program, hub: HubServer, files: Path) -> None:
    publish(hub, files)
    told = json.loads(output(millstream("fit", f"{ID}:Q8_0", "--ram", "1.2MB", "--chunk", "8", "--json")))
    assert told["label"] == "disk" and told["words"].startswith("streams from disk, about ")
    assert told["plan"]["disk"] > 0


def test_a_table_says_which_cannot_run_and_why(millstream: Program, hub: HubServer, files: Path) -> None:
    family = FAMILIES["qwen3"]
    family.write(files / "split-F32.gguf", family.make(), shard=8)
    max(files.glob("split*")).unlink()
    publish(hub, files)
    done = millstream("fit", ID)
    assert done.returncode == 0 and "cannot run here" in done.stdout
    assert "is missing" in " ".join(done.stdout.split())
    assert millstream("fit", ID, "--ram", "10kB").returncode == 2


def test_what_is_not_there_is_refused(millstream: Program, hub: HubServer, files: Path) -> None:
    publish(hub, files)
    assert "It has: Q4_K_M (277.5 kB), Q8_0 (1.7 MB)." in refusal(millstream("fit", f"{ID}:Q2_K"))
    assert "org/other" in refusal(millstream("fit", "org/other"))
    assert "no model" in refusal(millstream("fit", "nothing"))
    assert "context must be" in refusal(millstream("fit", f"{ID}:Q8_0", "--context", "-1"))
    hub.fault(f"/api/models/{ID}", Status(503), times=50)
    assert "Hub" in refusal(millstream("fit", "org/tiny2"))


def test_a_repository_without_models_says_so(millstream: Program, hub: HubServer) -> None:
    hub.add("org/empty", {"README.md": b"Nothing"})
    done = millstream("fit", "org/empty")
    assert done.returncode == 2 and "offers no model" in done.stdout


@POSIX
def test_a_terminal_sees_what_is_being_done(
    library: Path, hub: HubServer, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in hub.environment().items():
        monkeypatch.setenv(name, value)
    publish(hub, files)
    with Terminal(library, "fit", ID) as terminal:
        terminal.until(f"Looking at {ID} …")
        terminal.until("context")
        assert terminal.process.wait(60) == 0
