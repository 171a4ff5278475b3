"""Names of models, as people read them."""

from __future__ import annotations

import pytest

from app.naming import display_name, main_encoding
from engine.types import ModelInfo


def info(path: str, **encodings: int) -> ModelInfo:
    return ModelInfo(
        path=path,
        name="checkpoint mix1 ep2",
        architecture="llama",
        parameters=1,
        file_bytes=1,
        context_length=1,
        layers=1,
        hidden_size=1,
        vocabulary=1,
        encodings=encodings,
    )


@pytest.mark.parametrize(
    ("path", "encodings", "name"),
    [
        ("/models/SmolLM2-135M-Instruct.Q4_1.gguf", {"Q4_1": 9, "F32": 1}, "SmolLM2-135M-Instruct"),
        ("/models/Qwen3.5-4B-Q4_K_M.gguf", {"Q4_K": 9, "Q6_K": 1}, "Qwen3.5-4B"),
        ("/models/mill-q8_0.gguf", {"Q8_0": 9}, "mill"),
        ("/models/山 é/水車.gguf", {"F16": 9}, "水車"),
        ("/models/Q4_1.gguf", {"Q4_1": 9}, "Q4_1"),
        ("/models/mill.bin", {}, "mill.bin"),
        ("/models/mill.", {}, "mill."),
        ("/models/Mill-0.6B/model-00001-of-00002.safetensors", {"BF16": 9}, "checkpoint mix1 ep2"),
    ],
)
def test_a_model_is_called_as_its_file_is(path: str, encodings: dict[str, int], name: str) -> None:
    assert display_name(info(path, **encodings)) == name


def test_the_main_encoding_is_the_one_with_most_bytes() -> None:
    assert main_encoding(info("a.gguf", Q4_K=9, Q6_K=3)) == "Q4_K"
    assert main_encoding(info("a.gguf")) == ""
