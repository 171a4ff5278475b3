"""NVIDIA's cards, through the management library of its driver (NVML, by nvidia-ml-py)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from registry.probe.pci import NVIDIA, Card, driver_version, name_of
from registry.probe.tree import Gpu, Memory, Problem

T = TypeVar("T")

PART: Final = "gpus"
ABSENT: Final = (9, 12)
"""Answers of a machine without a card, and of one whose driver is not running or not installed."""

SENTENCES: Final = {
    4: "The system does not let this program ask NVIDIA's driver. Ask whoever looks after this machine for access.",
    9: "NVIDIA's driver is installed but not running. Restart the machine; if that does not help, install it again.",
    12: "There is an NVIDIA card, but NVIDIA's driver is not installed. Install it to use the card.",
    15: "The NVIDIA card has stopped answering. Restart the machine.",
    18: "NVIDIA's driver was updated while the old one was running. Restart the machine.",
}
"""By the codes of nvmlReturn_t (NVIDIA, NVML API Reference): no permission, driver not loaded, library not found, GPU
is lost, versions of library and driver that differ."""

NOUVEAU: Final = "The NVIDIA card runs with the driver nouveau, which cannot compute. Install NVIDIA's driver."
NO_PACKAGE: Final = (
    "The package nvidia-ml-py is missing, so that NVIDIA cards cannot be looked at. Install Millstream again."
)


def load() -> Any | None:
    """The module pynvml; `None` where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def nvidia(nvml: Any | None, memory: Memory, seen: list[Card], root: Path) -> tuple[list[Gpu], list[Problem]]:
    """What the driver tells. Where it cannot tell, the cards that were `seen` without it, and a problem.

    `nvml` has the functions of pynvml.
    """
    seen = [card for card in seen if card.vendor == NVIDIA]
    if nvml is None:
        return _broken(NO_PACKAGE, seen, root) if seen else ([], [])
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if not seen and error.value in ABSENT:
            return [], []
        if error.value in ABSENT and any(card.driver == "nouveau" for card in seen):
            return _broken(NOUVEAU, seen, root)
        return _broken(_sentence(error), seen, root)
    try:
        return _told(nvml, memory)
    except nvml.NVMLError as error:
        return _broken(_sentence(error), seen, root)
    finally:
        _asked(nvml, nvml.nvmlShutdown, None)


def _told(nvml: Any, memory: Memory) -> tuple[list[Gpu], list[Problem]]:
    found: list[Gpu] = []
    problems: list[Problem] = []
    driver = _asked(nvml, nvml.nvmlSystemGetDriverVersion, "")
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            found.append(_card(nvml, nvml.nvmlDeviceGetHandleByIndex(index), _plain(driver), memory))
        except nvml.NVMLError as error:
            problems.append(Problem(PART, f"NVIDIA card {index}: {_sentence(error)}"))
    return found, problems


def _card(nvml: Any, handle: Any, driver: str, memory: Memory) -> Gpu:
    """A card that shares the system's memory has none of its own to tell of: NVML does not support the question."""
    name = _plain(nvml.nvmlDeviceGetName(handle))
    capability = _asked(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), None)
    try:
        told = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free, shared = int(told.total), int(told.free), False
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
            raise
        total, free, shared = memory.total, memory.free, True
    return Gpu(
        vendor="nvidia",
        name=name if name.startswith("NVIDIA") else f"NVIDIA {name}",
        architecture="sm_{}{}".format(*capability) if capability else "",
        total=total,
        free=free,
        shared=shared,
        driver=driver,
        usable=False,
        why_not="",
    )


def _broken(sentence: str, seen: list[Card], root: Path) -> tuple[list[Gpu], list[Problem]]:
    cards = [
        Gpu(
            "nvidia", name_of(root, card), "", None, None, False, driver_version(root, card), False, "Its driver fails."
        )
        for card in seen
    ]
    return cards, [Problem(PART, sentence)]


def _sentence(error: Any) -> str:
    known = SENTENCES.get(error.value)
    return (
        known or f"NVIDIA's driver answers with an error ({error}). Restart the machine, or install the driver again."
    )


def _asked(nvml: Any, question: Callable[[], T], otherwise: T) -> T:
    """The answer, or what stands for it where the card has none."""
    try:
        return question()
    except nvml.NVMLError:
        return otherwise


def _plain(told: str | bytes) -> str:
    """Older versions of the module answer in bytes."""
    return told.decode(errors="replace") if isinstance(told, bytes) else told
