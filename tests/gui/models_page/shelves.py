"""A Hub full of models as people share them, whose sizes are true and whose bytes are made as they are read, and a
library with some of them: for pictures of the Models page."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from app.models_page.fitness import Fitness
from app.models_page.services import ThisMachine
from app.models_page.suggesting import KINDS
from engine.cancel import Cancel
from engine.errors import SettingsError
from registry.catalogue import Entry, catalogue
from registry.choice import fits
from registry.items import Offer
from registry.library import Library
from registry.machine import MachineFacts, facts
from registry.probe import Probe, from_json
from registry.rough import rough
from registry.sources.source import Source
from tests.hub_faults import Big
from tests.hub_files import File
from tests.hub_server import HubServer
from tests.tiny_chat import write_tiny_chat

MACHINES = Path(__file__).parents[2] / "registry" / "machines"
USUAL = ("Q2_K", "Q3_K_M", "IQ4_XS", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")
SHARED = (
    ("unsloth/Qwen3-8B-GGUF", "apache-2.0", "qwen3", 412_000, 8.2e9, ()),
    ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "llama3.1", "llama", 389_000, 8.03e9, ()),
    ("unsloth/gemma-3-12b-it-GGUF", "gemma", "gemma3", 271_000, 11.8e9, ("image-text-to-text",)),
    ("bartowski/Mistral-Small-24B-Instruct-2501-GGUF", "apache-2.0", "llama", 144_000, 23.6e9, ()),
    ("ggml-org/Qwen2.5-VL-7B-Instruct-GGUF", "apache-2.0", "qwen2vl", 98_000, 7.6e9, ("image-text-to-text",)),
    ("unsloth/Qwen3-235B-A22B-Instruct-2507-GGUF", "apache-2.0", "qwen3moe", 61_000, 235e9, ()),
    ("microsoft/Phi-4-mini-instruct-GGUF", "mit", "phi3", 40_300, 3.8e9, ()),
)
BESIDE = 512 << 20
"""Bytes beside the weights."""
GATED = "meta-llama/Llama-3.3-70B-Instruct-GGUF"
BITS = {
    "Q2_K": 3.2,
    "Q3_K_M": 3.9,
    "IQ4_XS": 4.3,
    "Q4_K_S": 4.6,
    "Q4_K_M": 4.85,
    "Q5_K_M": 5.7,
    "Q6_K": 6.6,
    "Q8_0": 8.5,
    "F16": 16,
}


def recorded(name: str) -> Probe:
    return from_json((MACHINES / f"{name}.json").read_text(encoding="utf-8"))


class RoughMachine(ThisMachine):
    """One of the recorded machines. What it says of an offer goes by its size alone, and asks for no byte of it."""

    def __init__(self, library: Library, name: str) -> None:
        super().__init__(lambda: library)
        self.recorded = recorded(name)
        self._facts = facts(self.recorded)

    def facts(self, cancel: Cancel) -> MachineFacts:
        return self._facts

    def machine(self, cancel: Cancel) -> Probe:
        return self.recorded

    def fit(self, source: Source, offer: Offer, unloading: int, cancel: Cancel) -> Fitness:
        return self._roughly(offer.files[0].repository, offer.name, offer.nbytes)

    def _roughly(self, repository: str, name: str, nbytes: int) -> Fitness:
        entries = {entry.repository: entry for entry in self.catalogue()}
        if (entry := entries.get(repository)) is not None:
            with suppress(SettingsError):
                choice = fits(entry, name, self._facts, sees=entry.sees)
                return Fitness(KINDS[choice.where], tok_s=choice.tok_s) if choice is not None else Fitness("cannot")
        machine, need = self._facts, nbytes + BESIDE
        if machine.room >= need:
            return Fitness("memory", tok_s=machine.memory_bandwidth / nbytes)
        held = max(machine.room - BESIDE, 0)
        seconds = held / machine.memory_bandwidth + (nbytes - held) / machine.disk_bandwidth
        return Fitness("disk", "It is larger than the memory that a model may take here.", 1 / seconds)


def fill(hub: HubServer) -> None:
    for number, entry in enumerate(catalogue()):
        hub.add(
            entry.repository,
            {},
            licence=entry.licence.lower(),
            family="",
            downloads=9000 + 137 * number,
            gated=entry.gated,
            tags=("gguf", *(("image-text-to-text",) if entry.sees else ())),
        )
        for quantisation in dict.fromkeys((*USUAL, *entry.quantisations)):
            try:
                nbytes = rough(entry, quantisation).file
            except (SettingsError, KeyError):
                continue
            _put(hub, entry.repository, f"{_stem(entry)}-{quantisation}.gguf", nbytes)
        if entry.sees:
            _put(hub, entry.repository, entry.mmproj, 2 * entry.shape.tower)
    for id, licence, family, downloads, weights, tags in SHARED:
        hub.add(
            id, {}, licence=licence, family=family, downloads=downloads, likes=downloads // 300, tags=("gguf", *tags)
        )
        name = id.rpartition("/")[2].removesuffix("-GGUF")
        for quantisation in USUAL:
            _put(hub, id, f"{name}-{quantisation}.gguf", round(weights * BITS[quantisation] / 8))
    hub.add(GATED, {}, gated=True, licence="llama3.3", downloads=55_000)
    for quantisation in USUAL[3:7]:
        _put(hub, GATED, f"Llama-3.3-70B-Instruct-{quantisation}.gguf", round(70.6e9 * BITS[quantisation] / 8))


def _stem(entry: Entry) -> str:
    return entry.repository.rpartition("/")[2].removesuffix("-GGUF")


def _put(hub: HubServer, id: str, path: str, nbytes: int) -> None:
    repository = hub.repository(id)
    assert repository is not None
    digest = hashlib.sha256(f"{id}/{path}".encode()).hexdigest()
    repository.files[path] = File(path, Big(nbytes), digest, digest[:40])


def stock(root: Path, made: Path) -> None:
    """Models of the library as they come to it: with a note of where they are from, and of their files' sizes."""
    from registry.downloads.verify import KeptFile, Provenance

    tiny = write_tiny_chat(made / "tiny.gguf").read_bytes()
    qwen, smol, gemma = "Qwen3-4B-Instruct-2507", "SmolLM2-360M-Instruct", "gemma-3-4b-it"
    for owner, model, encoding, licence, day, nbytes, sound in (
        ("unsloth", qwen, "Q4_K_M", "apache-2.0", "2026-05-29", 2_497_281_120, True),
        ("bartowski", smol, "Q8_0", "apache-2.0", "2026-04-02", 386_405_440, True),
        ("unsloth", gemma, "Q4_K_M", "gemma", "2026-05-11", 2_489_894_016, False),
    ):
        name, repository = f"{model}-{encoding}", f"{model}-GGUF"
        folder = root / owner / repository / name
        folder.mkdir(parents=True)
        (folder / f"{name}.gguf").write_bytes(tiny)
        os.truncate(folder / f"{name}.gguf", nbytes)  # nothing of the rest takes room
        sha256 = hashlib.sha256(tiny).hexdigest()
        file = KeptFile(
            f"{name}.gguf", nbytes, sha256, "hub", f"{owner}/{repository}", "0" * 40, f"{name}.gguf", True, not sound
        )
        Provenance(name, f"{name}.gguf", licence, day, (file,)).write(folder)
