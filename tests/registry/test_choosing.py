"""Which of a repository's items a name means, and which one is taken without a name."""

from __future__ import annotations

import pytest

from engine.errors import DownloadError
from registry.items import offers
from registry.naming import Picked, choose
from registry.sources.source import RemoteFile, Repository

ID = "labs/Tiny-GGUF"


def chosen(*paths: str, name: str = "") -> Picked:
    files = tuple(RemoteFile("hub", ID, "0" * 40, path, 1000 + place) for place, path in enumerate(paths))
    return choose(ID, offers(Repository("hub", ID, files=files)), name)


@pytest.mark.parametrize(
    ("there", "best"),
    [
        (("Q2_K", "Q4_0", "Q4_K_S", "Q4_K_M", "Q8_0", "F16"), "Q4_K_M"),
        (("Q2_K", "Q4_0", "Q4_K_S", "Q8_0", "F16"), "Q4_K_S"),
        (("Q3_K_M", "Q5_K_M", "Q8_0"), "Q5_K_M"),
        (("IQ3_M", "Q2_K"), "IQ3_M"),
        (("Q8_0", "F16"), "Q8_0"),
        (("MXFP4", "F16"), "MXFP4"),
        (("F32", "BF16"), "BF16"),
    ],
)
def test_without_a_name_the_usual_one_is_taken_or_the_nearest(there: tuple[str, ...], best: str) -> None:
    choice = chosen(*(f"Tiny-{name}.gguf" for name in there))
    assert choice.offer.name == best
    assert ("nearest to Q4_K_M" in choice.why) == (best != "Q4_K_M")


def test_the_only_one_is_taken_whatever_it_is_and_a_checkpoint_only_without_a_gguf() -> None:
    assert chosen("anything.gguf").why == "the only one there"
    checkpoint = ("model.safetensors", "config.json", "tokenizer.json")
    assert chosen(*checkpoint).offer.name == "safetensors"
    assert chosen("Tiny-Q8_0.gguf", *checkpoint).offer.name == "Q8_0"
    assert chosen("Tiny-Q8_0.gguf", *checkpoint, name="safetensors").offer.kind == "checkpoint"
    assert chosen("Tiny-Q4_K_M-00001-of-00002.gguf", "Tiny-Q8_0.gguf").offer.name == "Q8_0"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("q8_0", "Tiny-Q8_0.gguf"),
        ("Q8", "Tiny-Q8_0.gguf"),
        ("tiny-q8_0.gguf", "Tiny-Q8_0.gguf"),
        ("tiny-q8_0", "Tiny-Q8_0.gguf"),
        ("Q4_K_M", "big/Tiny-Q4_K_M-00001-of-00002.gguf"),
        ("Tiny-Q4_K_M-00002-of-00002.gguf", "big/Tiny-Q4_K_M-00001-of-00002.gguf"),
        ("big/Tiny-Q4_K_M-00001-of-00002.gguf", "big/Tiny-Q4_K_M-00001-of-00002.gguf"),
        ("F16", "Tiny-F16.gguf"),
        ("BF16", "Tiny-BF16.gguf"),
    ],
)
def test_a_name_is_that_of_an_encoding_or_of_a_file(name: str, path: str) -> None:
    there = [f"big/Tiny-Q4_K_M-0000{part}-of-00002.gguf" for part in (1, 2)]
    there += [f"Tiny-{encoding}.gguf" for encoding in ("Q8_0", "F16", "BF16", "Q3_K_S", "Q3_K_L")]
    assert chosen(*there, name=name).offer.files[0].path == path


def test_an_ambiguous_or_unknown_name_is_answered_with_what_there_is() -> None:
    two = ("One-Q4_K_M.gguf", "Two-Q4_K_M.gguf")
    for name in ("", "Q4_K_M", "q4"):
        with pytest.raises(DownloadError, match=r"One-Q4_K_M \(1\.0 kB\), Two-Q4_K_M"):
            chosen(*two, name=name)
    with pytest.raises(DownloadError, match=r"has no “Q8_0”\. It has: One-Q4_K_M"):
        chosen(*two, name="Q8_0")
    with pytest.raises(DownloadError, match="and 60 more"):
        chosen(*(f"{number}.gguf" for number in range(100)), name="none")


def test_what_cannot_be_loaded_is_refused_with_its_reason() -> None:
    with pytest.raises(DownloadError, match="neither GGUF nor safetensors"):
        chosen("README.md")
    with pytest.raises(DownloadError, match="only 1 of the 2 parts"):
        chosen("Tiny-Q4_K_M-00001-of-00002.gguf", "Tiny-Q8_0.gguf", name="Q4_K_M")
    with pytest.raises(DownloadError, match="can run code"):
        chosen("pytorch_model.bin", "config.json")
