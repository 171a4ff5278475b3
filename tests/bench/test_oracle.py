"""The judge of accuracy reads a file back as the model that it was written from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bench.oracle import CLASSES, GEMMA, transformers_model
from engine import models
from engine.formats.gguf import read
from tests.engine.models.mixtures import MIXTURES
from tests.tiny import tiny, write_gguf

CHANGES = {
    "phi3": {
        "sliding_window": 7,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5},
    },
    "gemma2": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "gemma3": {
        "num_hidden_layers": 6,
        "final_logit_softcapping": 3.0,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
}


def test_it_knows_every_architecture_of_the_engine_but_mixtures() -> None:
    assert CLASSES.keys() | set(MIXTURES) == models.ARCHITECTURES.keys()


@pytest.mark.parametrize("architecture", CLASSES)
@pytest.mark.parametrize("tied", [False, True])
def test_a_file_is_read_back_as_the_model_that_it_was_written_from(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    tied = tied or architecture in GEMMA
    model = tiny(architecture, **(CHANGES.get(architecture, {}) | {"tie_word_embeddings": tied}))
    write_gguf(tmp_path / "tiny.gguf", model, "Q8_0")
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        written, back = (
            each(tokens).logits.numpy() for each in (model, transformers_model(read(tmp_path / "tiny.gguf")))
        )
    assert np.abs(back - written).max() <= 1e-6 * np.abs(written).max()
