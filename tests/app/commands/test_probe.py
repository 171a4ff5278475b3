"""`millstream probe`."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.probe import from_json, reading
from tests.app.running import Program, output


def test_it_tells_what_the_machine_has(millstream: Program) -> None:
    told = output(millstream("probe"))
    keys = [line.split()[0] for line in told.splitlines() if line[0] != " "]
    assert keys[:6] == ["System", "Processor", "Memory", "Models", "Battery", "Graphics"]
    assert "kernels, in " in told and "reads " in told


def test_it_gives_a_record_that_can_be_read_back(millstream: Program, library: Path) -> None:
    found = from_json(output(millstream("probe", "--json")))
    assert found.storage.state == "ready" and found.storage.folder.endswith("models")
    assert found.memory.total > 0


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_narrow_terminal_breaks_no_line_by_itself(
    millstream: Program, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = output(millstream("probe")).splitlines()
    assert all(len(line) <= int(columns) for line in lines if " " in line[12:].strip())


def test_the_drive_is_measured_only_when_that_is_asked_for(
    millstream: Program, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ENOUGH", 4 << 20)
    monkeypatch.setattr("engine.memory.machine.measure_drive.__defaults__", (0.01, None))
    kept = library / "cache" / "measurements.json"
    kept.unlink(missing_ok=True)
    assert from_json(output(millstream("probe", "--json"))).storage.read_rate is None
    assert not kept.exists()
    assert from_json(output(millstream("probe", "--json", "--measure"))).storage.read_rate
    assert [file.name for file in (library / "models").iterdir()] == ["tiny.gguf"]
    assert "not measured" not in output(millstream("probe"))
