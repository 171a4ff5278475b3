"""The same files in llama.cpp, where a Python that has llama-cpp-python is to be found: a second, independent judge of
what the conventions of GGUF files mean.

It is this Python, or the one that MILLSTREAM_PEER_PYTHON names.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.accuracy import teacher_forced
from engine.kernels.reference import ReferenceOps
from tests.engine.models import peer
from tests.engine.models.families import FAMILIES
from tests.engine.models.judge import TOKENS
from tests.tiny import CONTEXT, load_model

PEER = "MILLSTREAM_PEER_PYTHON"
ENCODINGS = {"bitnet": ("F32", "TQ2_0")}
"""Of files, where they are not F32 and Q8_0."""
PACKED = {"qwen35": 0.15, "qwen35moe": 0.15}
"""The largest error for packed weights, as a share of the largest logit, where it is not 0.1: llama.cpp rounds their
input to int8, by blocks of 32 or 256. A recurrent state gathers such errors."""
MIXTURES = ("deepseek v2", "deepseek v3", "gemma4 experts", "gpt-oss", "mixtral", "qwen35moe", "qwen3moe", "qwen3vlmoe")
"""Families in which such an error now and then sends a token, whose experts' scores nearly tie, to another expert."""
ELSEWHERE = 0.2
"""The share of tokens that may go there."""
FLOAT = {"bitnet": 5e-2, "gemma2": 2e-3, "gemma3": 2e-3, "gemma4": 2e-3, "gemma4 experts": 2e-3}
"""The same for F32, where it is not 2e-5: llama.cpp looks GELU up in a table of float16, and does not round the
activations of BitNet where its weights are not packed."""
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
COVERED: dict[str, object] = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
}
NEEDED: dict[str, dict[str, object]] = {
    "bitnet": {"tie_word_embeddings": True},
    "smollm3": {"num_hidden_layers": 4},
    "gemma3": {"num_hidden_layers": 7},
    # Without a cap in the file llama.cpp takes 30 (`llama_hparams`), where Transformers and this engine take none.
    "gemma4": {"final_logit_softcapping": 30.0},
    "gemma4 experts": {"final_logit_softcapping": 30.0},
    "qwen35": {"head_dim": 32},
    "qwen35moe": {"head_dim": 32},
    # `ggml_mrope_cache_init` lets pairs that no section covers turn by a fourth position, which is 0 in text; in
    # Transformers they turn by time, and so they do here. Of Qwen3-VL's 64 pairs these are 61 and 62, the slowest.
    "qwen3vl": COVERED,
    "qwen3vlmoe": COVERED,
}
"""What llama.cpp asks of a family, what makes its layers differ, and what keeps it from answers of its own."""
FOREIGN = {"bitnet-b1.58": "it is an architecture of bitnet.cpp's fork"}
"""Architectures that llama.cpp does not have."""
# No window of Phi-3's: `llama_model_phi3::load_arch_hparams` leaves it out, since older files give a wrong one.
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama, biases": ("llama", {"attention_bias": True}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, wide heads": ("llama", {"head_dim": 32}),
    "llama, linear rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama, llama 3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "qwen2, yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen3, narrow heads": ("qwen3", {"head_dim": 8, "num_key_value_heads": 4}),
    "phi3, part of a head turns": (
        "phi3",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}},
    ),
    "gemma2, caps that bite": ("gemma2", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3, a cap that bites": ("gemma3", {"num_hidden_layers": 6, "final_logit_softcapping": 3.0}),
}
CASES = {name: (name, NEEDED.get(name, {})) for name in FAMILIES if name not in FOREIGN} | VARIANTS
FILES = [(case, encoding) for case, (name, _) in CASES.items() for encoding in ENCODINGS.get(name, ("F32", "Q8_0"))]


def test_every_architecture_is_compared_or_is_none_of_llama_cpp() -> None:
    assert {name for name, _ in CASES.values()} | FOREIGN.keys() == FAMILIES.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file, and beside it the logits of llama.cpp, as float32."""
    python = os.environ.get(PEER) or (sys.executable if importlib.util.find_spec("llama_cpp") else None)
    if python is None:
        pytest.skip(f"llama-cpp-python is not installed here; name a Python that has it in {PEER}")
    made = tmp_path_factory.mktemp("peer")
    for case, encoding in FILES:
        name, changes = CASES[case]
        FAMILIES[name].write(place(made, case, encoding), FAMILIES[name].make(**changes), encoding)
    command = [python, str(Path(peer.__file__)), str(made), str(CONTEXT), *map(str, TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def place(folder: Path, case: str, encoding: str) -> Path:
    return folder / f"{case.replace(', ', '-').replace(' ', '-')}-{encoding}.gguf"


@pytest.mark.parametrize(("case", "encoding"), FILES)
def test_llama_cpp_gives_the_same_answer(folder: Path, case: str, encoding: str) -> None:
    path = place(folder, case, encoding)
    assert path.with_suffix(".npy").exists(), "llama.cpp refused the file"
    theirs = np.load(path.with_suffix(".npy"))
    ops = ReferenceOps()
    ours = teacher_forced(load_model(path, ops), ops, TOKENS, kv="f32")
    name, _ = CASES[case]
    bound = FLOAT.get(name, 2e-5) if encoding == "F32" else PACKED.get(name, 0.1)
    largest = np.abs(theirs).max()
    assert ours.shape == theirs.shape
    close = np.abs(ours - theirs).max(axis=1) <= bound * largest
    assert close.mean() >= (1 - ELSEWHERE if name in MIXTURES and encoding != "F32" else 1)
    second, first = np.sort(theirs, axis=1)[:, -2:].T
    decided = close & (first - second > bound * largest)
    assert decided.mean() > 0.2
    assert np.array_equal(ours.argmax(axis=1)[decided], theirs.argmax(axis=1)[decided])
