"""This computer, on the page: told in plain words, copied into a report, and its drive measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel

from app.models_page.computer import ThisComputer
from app.models_page.machine_words import blocks
from app.models_page.page import ModelsPage
from engine.memory import machine as memory_machine
from engine.memory.figures import Drive
from registry.probe import reading, report
from tests.gui.models_page.conftest import Oracle, Walk
from tests.gui.models_page.shelves import MACHINES, recorded


@pytest.fixture
def computer(page: ModelsPage, walk: Walk) -> ThisComputer:
    page.show_part("computer")
    walk.until(lambda: page.computer.views)
    return page.computer


def said(computer: ThisComputer) -> str:
    return "\n".join(text.text() for view in computer.views for text in view.findChildren(QLabel) if text.isVisible())


def test_it_tells_what_the_machine_is_and_why_a_card_is_not_used(
    page: ModelsPage, computer: ThisComputer, walk: Walk
) -> None:
    oracle = page.search.services.oracle
    assert isinstance(oracle, Oracle)
    for fact in ("11th Gen Intel", "17.0 GB", "181.2 GB free of 510.8 GB", "reads 2.4 GB/s", "Not used. This version"):
        assert fact in said(computer)
    oracle.recorded = recorded("desktop-nvidia-broken")
    page.show_part("library")
    page.show_part("computer")
    walk.until(lambda: "RTX 3070" in said(computer))
    assert "Its driver fails" in said(computer)
    assert "Restart the machine." in said(computer)


def test_its_text_is_copied_for_a_report(page: ModelsPage, computer: ThisComputer) -> None:
    oracle = page.search.services.oracle
    assert isinstance(oracle, Oracle)
    QGuiApplication.clipboard().clear()
    assert computer.actions.main.text() == "Copy"
    computer.actions.main.click()
    assert QGuiApplication.clipboard().text() == report(oracle.recorded)
    assert "~\\AppData" in QGuiApplication.clipboard().text()
    assert computer.actions.told.startswith("Copied")


@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.json")))
def test_every_recorded_machine_has_a_title_for_each_part_and_all_its_problems(name: str) -> None:
    probe = recorded(name)
    told = blocks(probe)
    assert all(block.title or block.warnings for block in told)
    assert sorted(sentence for block in told for sentence in block.warnings if block.part != "Processor") == sorted(
        problem.sentence for problem in probe.problems if problem.part != "processor"
    )
    for gpu in probe.gpus:
        assert gpu.why_not in " ".join(line for block in told for line in block.lines)


def test_the_real_drive_is_measured_with_progress_and_can_be_stopped(
    page: ModelsPage, computer: ThisComputer, walk: Walk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ENOUGH", 16 << 20)
    monkeypatch.setattr(reading, "LEFT", 0)
    ended: list[bool] = []
    computer.measured.connect(lambda: ended.append(True))
    measure = computer.actions.quiet[0]
    assert measure.text() == "Measure the drive"
    measure.click()
    assert computer.actions.main.text() == "Stop"
    computer.actions.main.click()
    assert computer.actions.main.text() == "Copy" and not ended
    measure.click()
    walk.until(lambda: ended)
    assert computer.actions.told == "The drive was measured."
    root = page.search.services.library().root
    drive = memory_machine.kept_drive(root, folder / "cache" / "measurements.json")
    assert isinstance(drive, Drive) and drive.bandwidth > 0
    assert [path.name for path in root.iterdir() if path.name.startswith(".measure")] == []


def test_a_drive_that_refuses_to_be_measured_says_so(
    computer: ThisComputer, walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LEFT", 1 << 60)
    computer.actions.quiet[0].click()
    walk.until(lambda: computer.trouble.isVisible())
    assert "too full to measure it" in computer.trouble.line.sentence
    assert computer.actions.main.text() == "Copy"
