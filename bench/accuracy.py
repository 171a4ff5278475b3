"""How far a model's logits are from those of Transformers in float32 over the same decoded weights.

    python -m bench.accuracy MODEL.gguf --ops native --kv f16

Both read the text of `prose.txt`, and the logits of every position are compared. Prints one JSON object. MODEL is a
GGUF file of an architecture that the engine knows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from app.console import find_model
from bench.oracle import transformers_model
from engine import MillstreamError, models
from engine.checks import check_count
from engine.formats.gguf import read
from engine.formats.index import TensorIndex
from engine.kernels.native import NativeOps
from engine.kernels.ops import Ops
from engine.kernels.plain import PlainOps
from engine.kernels.reference import ReferenceOps
from engine.memory.meter import Meter
from engine.memory.store import WeightStore
from engine.models.model import Model
from engine.text.tokenizer import Tokenizer
from engine.types import CACHE_KINDS

OPS: dict[str, Callable[[], Ops]] = {"reference": ReferenceOps, "plain": PlainOps, "native": NativeOps}
PROSE = Path(__file__).with_name("prose.txt")


def teacher_forced(model: Model, ops: Ops, tokens: Sequence[int], *, kv: str, chunk: int = 512) -> np.ndarray:
    """The logits of every position, float32 [n, vocabulary], from prefill calls of `chunk` tokens."""
    caches = [ops.cache(spec, len(tokens), kv) for spec in model.caches]
    rows = []
    for start in range(0, len(tokens), chunk):
        hidden = model.hidden(ops, tokens[start : start + chunk], start, caches)
        rows.append(np.array(ops.host(model.logits(ops, hidden))))
    return np.concatenate(rows)


def compare(logits: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Errors as shares of the largest true logit, and how often the best token is the same.

    A position is decided where the true best two are further apart than twice the largest error of all.
    """
    largest = np.abs(truth).max()
    error = np.abs(logits.astype(np.float64) - truth)
    second, first = np.partition(truth, -2, axis=-1)[:, -2:].T
    decided = first - second > 2 * error.max()
    agree = logits.argmax(axis=-1) == truth.argmax(axis=-1)
    return {
        "positions": len(truth),
        "largest_logit": float(largest),
        "max_error": float(error.max() / largest),
        "mean_error": float(error.mean() / largest),
        "agree": int(agree.sum()),
        "decided": int(decided.sum()),
        "decided_agree": int((decided & agree).sum()),
    }


def prose_tokens(index: TensorIndex, count: int) -> list[int]:
    """The first `count` tokens of the text in the model's vocabulary."""
    tokens = Tokenizer.from_metadata(index.metadata).encode(
        PROSE.read_text("utf-8"), parse_special=False, add_bos=False
    )
    if len(tokens) < count:
        raise SystemExit(f"The text has only {len(tokens)} tokens in this vocabulary; ask for no more.")
    return tokens[:count]


def engine_logits(index: TensorIndex, ops: Ops, tokens: Sequence[int], *, kv: str) -> np.ndarray:
    with closing(WeightStore(index, ops, Meter())) as store:
        model = models.build(index.metadata, store, context=len(tokens))
    return teacher_forced(model, ops, tokens, kv=kv)


def transformers_logits(index: TensorIndex, tokens: Sequence[int]) -> np.ndarray:
    with torch.no_grad():
        return transformers_model(index)(torch.tensor([tokens])).logits[0].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a file, a name in the library, or starter")
    parser.add_argument("--ops", choices=OPS, default="native")
    parser.add_argument("--kv", choices=CACHE_KINDS, default="f16")
    parser.add_argument("--tokens", type=int, default=512)
    arguments = parser.parse_args()
    try:
        check_count("--tokens", arguments.tokens)
        index = read(find_model(arguments.model))
        tokens = prose_tokens(index, arguments.tokens)
        with closing(OPS[arguments.ops]()) as ops:
            logits = engine_logits(index, ops, tokens, kv=arguments.kv)
    except MillstreamError as error:
        raise SystemExit(f"bench.accuracy: {error}") from error
    result = compare(logits, transformers_logits(index, tokens))
    print(json.dumps({"ops": arguments.ops, "kv": arguments.kv} | result))


if __name__ == "__main__":
    main()
