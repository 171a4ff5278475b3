"""The probes of recorded machines: read back, told in words, and refused where they are not sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import SettingsError
from registry.probe import Probe, from_json, report, to_json

MACHINES = Path(__file__).parent.parent / "machines"
NAMES = sorted(file.stem for file in MACHINES.glob("*.json"))


def recorded(name: str) -> Probe:
    return from_json((MACHINES / f"{name}.json").read_text("utf-8"))


def test_there_are_machines_of_every_kind() -> None:
    probes = [recorded(name) for name in NAMES]
    assert len(probes) >= 12
    assert {gpu.vendor for probe in probes for gpu in probe.gpus} == {"nvidia", "amd", "intel", "apple"}
    assert {probe.system.name for probe in probes} == {"Linux", "Windows", "macOS"}
    assert {probe.processor.kernels for probe in probes} == {"avx512", "avx2", "neon", "portable"}
    assert any(len([gpu for gpu in probe.gpus if not gpu.shared]) == 2 for probe in probes)
    assert any(not probe.gpus for probe in probes) and any(probe.battery for probe in probes)
    assert any(probe.memory.total < probe.memory.installed for probe in probes)
    assert {probe.storage.state for probe in probes} >= {"ready", "new", "drive missing"}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_machine_is_one_that_can_be(name: str) -> None:
    probe = recorded(name)
    assert to_json(probe) + "\n" == (MACHINES / f"{name}.json").read_text("utf-8")
    assert probe.memory.free <= probe.memory.total <= probe.memory.installed
    assert 1 <= probe.processor.threads <= probe.processor.cores <= probe.processor.logical
    assert (probe.storage.free or 0) <= (probe.storage.total or 0)
    for gpu in probe.gpus:
        assert (gpu.free or 0) <= (gpu.total or 0)
        assert not gpu.shared or (gpu.total or 0) <= probe.memory.installed
        assert gpu.usable is (not gpu.why_not)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_tells_everything_in_lines_that_fit(name: str) -> None:
    probe = recorded(name)
    for columns in (60, 80, 120):
        told = report(probe, columns)
        assert all(len(line) <= columns and line == line.rstrip() for line in told.splitlines())
    told = " ".join(report(probe).split())
    for part in (probe.processor.name, probe.storage.folder, *(gpu.name for gpu in probe.gpus)):
        assert part in told
    assert all(problem.sentence in told for problem in probe.problems)
    assert "None" not in told and "True" not in told


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.txt")), ids=lambda file: file.stem)
def test_a_report_reads_as_it_was_found_good(file: Path) -> None:
    assert report(recorded(file.stem)) == file.read_text("utf-8")


def changed(**fields: Any) -> str:
    return json.dumps(json.loads((MACHINES / "desktop-24gb-nvidia.json").read_text("utf-8")) | fields)


def test_keys_of_another_version_are_left_out_and_named() -> None:
    sound = json.loads(changed())
    sound["memory"]["speed"] = 5600
    probe = from_json(json.dumps(sound | {"npu": {"name": "x"}}))
    assert probe.memory == recorded("desktop-24gb-nvidia").memory
    (problem,) = probe.problems
    assert problem.part == "record" and "npu" in problem.sentence and "memory.speed" in problem.sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a probe"),
        ("{}", "not a probe"),
        (changed(version=2), "version 1"),
        (changed(memory=None), "memory is not an object"),
        (changed(memory={"total": 1, "free": 1}), "memory.installed is missing"),
        (changed(memory={"total": -1, "free": 1, "installed": 1}), "memory.total"),
        (changed(memory={"total": True, "free": 1, "installed": 1}), "memory.total"),
        (changed(memory={"total": 1 << 63, "free": 1, "installed": 1}), "memory.total"),
        (changed(gpus={}), "gpus is not a list"),
        (changed(gpus=[{"vendor": "voodoo"}]), r"gpus\[0\]"),
        (changed(battery=[]), "battery is not an object"),
        (changed(problems=[{"part": "gpus", "sentence": 3}]), "sentence"),
        (changed().replace("6240000000.0", "NaN"), "read_rate"),
        (changed().replace("6240000000.0", "0"), "read_rate"),
    ],
)
def test_what_is_no_probe_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        from_json(text)
