"""Tiny models against Transformers, in float32 over the same weights."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from bench.accuracy import teacher_forced
from tests.engine.devices import CONTRACT, DEVICES
from tests.tiny import load_model

ENCODINGS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")
TOKENS = [int(token) for token in np.random.default_rng(4).integers(0, 33, 40)]


def tolerance(device: str, kv: str) -> float:
    """The largest error allowed, as a share of the largest logit."""
    if kv == "f16":
        return 5e-3
    return 1e-3 if device in CONTRACT else 2e-5


def transformers_logits(model: PreTrainedModel) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].numpy()


def agree(made: np.ndarray, truth: np.ndarray, share: float) -> None:
    """No logit is off by more than this share of the largest, and the first choice is the same wherever the gap to the
    second is more than twice the largest error, which most positions have."""
    error = np.abs(made - truth).max()
    assert error <= share * np.abs(truth).max()
    first, second = np.sort(truth, axis=1)[:, :-3:-1].T
    clear = first - second > 2 * error
    assert (made.argmax(axis=1) == truth.argmax(axis=1))[clear].all()
    assert clear.mean() > 0.5


def check(path: Path, truth: np.ndarray, device: str, kv: str) -> None:
    """Whole, in chunks, and in single steps; a device of the contract gives the same bits each time."""
    share = tolerance(device, kv)
    with closing(DEVICES[device]()) as ops:
        model = load_model(path, ops)
        whole = teacher_forced(model, ops, TOKENS, kv=kv)
        agree(whole, truth, share)
        for chunk in (1, 3, 7):
            parts = teacher_forced(model, ops, TOKENS, kv=kv, chunk=chunk)
            agree(parts, truth, share)
            if device in CONTRACT:
                assert np.array_equal(parts.view(np.uint32), whole.view(np.uint32)), f"chunks of {chunk} differ"
