"""NVIDIA's cards, by an object that answers as NVML does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from registry.probe.gpus import NOT_YET, linux_gpus, windows_gpus
from registry.probe.nvidia import SENTENCES, nvidia
from registry.probe.tree import Memory
from registry.probe.windows import windows
from tests.registry.probe.trees import pci_card

MEMORY = Memory(64_000_000_000, 50_000_000_000, 64_000_000_000)


class Nvml:
    """The part of pynvml that is asked, with the values of given cards. `fails` maps a function's name to a code."""

    NVML_ERROR_NOT_SUPPORTED = 3

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"code {value}")
            self.value = value

    def __init__(self, *cards: dict[str, Any], driver: Any = "570.133.07", fails: dict[str, int] | None = None) -> None:
        self.cards, self.driver, self.fails = cards, driver, fails or {}
        self.open = 0

    def _may(self, name: str) -> None:
        if name in self.fails:
            raise self.NVMLError(self.fails[name])

    def nvmlInit(self) -> None:
        self._may("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> Any:
        self._may("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        self._may("nvmlDeviceGetCount")
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        card = self.cards[index]
        if "lost" in card:
            raise self.NVMLError(card["lost"])
        return card

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> Any:
        return handle["name"]

    def nvmlDeviceGetCudaComputeCapability(self, handle: dict[str, Any]) -> tuple[int, int]:
        return handle["capability"]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:
        if handle["memory"] is None:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        total, free = handle["memory"]
        return SimpleNamespace(total=total, free=free, used=total - free)


ADA = {"name": "NVIDIA GeForce RTX 4090", "capability": (8, 9), "memory": (25757220864, 25162809344)}
AMPERE = {"name": "NVIDIA GeForce RTX 3060", "capability": (8, 6), "memory": (12884901888, 11843665920)}
UNIFIED = {"name": "NVIDIA GB10", "capability": (12, 1), "memory": None}


def test_two_cards_are_told_of_the_larger_first(tmp_path: Path) -> None:
    nvml = Nvml(AMPERE, ADA)
    found, problems = linux_gpus(tmp_path, MEMORY, nvml)
    assert [(gpu.name, gpu.architecture, gpu.total, gpu.free) for gpu in found] == [
        ("NVIDIA GeForce RTX 4090", "sm_89", 25757220864, 25162809344),
        ("NVIDIA GeForce RTX 3060", "sm_86", 12884901888, 11843665920),
    ]
    assert {(gpu.vendor, gpu.driver, gpu.shared, gpu.usable, gpu.why_not) for gpu in found} == {
        ("nvidia", "570.133.07", False, False, NOT_YET)
    }
    assert (problems, nvml.open) == ((), 0)


def test_a_chip_without_memory_of_its_own_shares_the_systems(tmp_path: Path) -> None:
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, Nvml(UNIFIED))
    assert (gpu.architecture, gpu.total, gpu.free, gpu.shared) == ("sm_121", MEMORY.total, MEMORY.free, True)


def test_answers_in_bytes_are_read_as_text(tmp_path: Path) -> None:
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, Nvml(ADA | {"name": b"GeForce GTX 1080"}, driver=b"470.10"))
    assert (gpu.name, gpu.driver) == ("NVIDIA GeForce GTX 1080", "470.10")


@pytest.mark.parametrize("code", [9, 12])
def test_a_machine_without_a_card_has_no_problem(tmp_path: Path, code: int) -> None:
    assert linux_gpus(tmp_path, MEMORY, Nvml(fails={"nvmlInit": code})) == ((), ())
    assert linux_gpus(tmp_path, MEMORY, None) == ((), ())


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_a_broken_driver_leaves_the_card_and_a_sentence(tmp_path: Path, code: int) -> None:
    pci_card(tmp_path, "0000:01:00.0", "10de:2484", "nvidia")
    (gpu,), (problem,) = linux_gpus(tmp_path, MEMORY, Nvml(fails={"nvmlInit": code}))
    assert (gpu.name, gpu.total, gpu.architecture) == ("NVIDIA graphics (10de:2484)", None, "")
    assert not gpu.usable and gpu.why_not == f"Its driver fails. {NOT_YET}"
    assert problem.part == "gpus"
    assert problem.sentence == SENTENCES.get(code, problem.sentence) and problem.sentence.endswith(".")


def test_a_driver_that_breaks_in_mid_answer_is_closed_and_told_of(tmp_path: Path) -> None:
    nvml = Nvml(ADA, fails={"nvmlDeviceGetCount": 999})
    found, problems = nvidia(nvml, MEMORY, [], tmp_path)
    assert (found, len(problems), nvml.open) == ([], 1, 0)


def test_one_lost_card_does_not_hide_the_other(tmp_path: Path) -> None:
    (gpu,), (problem,) = linux_gpus(tmp_path, MEMORY, Nvml({"lost": 15}, ADA))
    assert gpu.name == "NVIDIA GeForce RTX 4090"
    assert problem.sentence == f"NVIDIA card 0: {SENTENCES[15]}"


def test_nouveau_is_named_and_so_is_a_missing_package(tmp_path: Path) -> None:
    pci_card(tmp_path, "0000:01:00.0", "10de:1b80", "nouveau")
    _, (problem,) = linux_gpus(tmp_path, MEMORY, Nvml(fails={"nvmlInit": 12}))
    assert "nouveau" in problem.sentence
    (gpu,), (problem,) = linux_gpus(tmp_path, MEMORY, None)
    assert "nvidia-ml-py" in problem.sentence and gpu.driver == "nouveau, Linux 6.12.33"


def test_windows_lists_a_card_whose_driver_tells_nothing(tmp_path: Path) -> None:
    listed = windows([{"DriverDesc": "NVIDIA GeForce RTX 3070", "MatchingDeviceId": r"PCI\VEN_10DE&DEV_2484"}])
    for nvml, said in ((None, "nvidia-ml-py"), (Nvml(fails={"nvmlInit": 12}), "not installed")):
        (gpu,), (problem,) = windows_gpus(listed, MEMORY, nvml)
        assert gpu.name == "NVIDIA GeForce RTX 3070" and said in problem.sentence
    (gpu,), problems = windows_gpus(listed, MEMORY, Nvml(ADA))
    assert (gpu.name, problems) == ("NVIDIA GeForce RTX 4090", ())
    assert windows_gpus([], MEMORY, None) == ((), ())


def test_the_real_module_answers_here_without_an_exception(tmp_path: Path) -> None:
    pynvml = pytest.importorskip("pynvml")
    found, problems = nvidia(pynvml, MEMORY, [], tmp_path)
    assert all(gpu.name.startswith("NVIDIA") and gpu.total for gpu in found)
    assert all(problem.sentence for problem in problems)
