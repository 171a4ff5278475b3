"""`millstream info`: what a model file holds."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from app import options
from app.console import find_model, tower_of, write
from engine import human_bytes
from engine.units import plural

NAME = "info"
SUMMARY = "tell what a model file holds"


def parents() -> Sequence[argparse.ArgumentParser]:
    return (options.model(),)


def configure(parser: argparse.ArgumentParser) -> None:
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from engine import describe

    budgets = options.budgets(arguments)
    path = find_model(arguments.model)
    model = describe(path, budgets, mmproj=tower_of(path, arguments.mmproj))
    if arguments.json:
        write(json.dumps(dataclasses.asdict(model), ensure_ascii=False) + "\n")
        return 0
    rows = {
        "name": model.name,
        "file": model.path,
        "size": human_bytes(model.file_bytes),
        "architecture": model.architecture,
        "parameters": f"{model.parameters / 1e6:,.1f} million",
        "layers": f"{model.layers} of width {model.hidden_size}",
        "vocabulary": f"{model.vocabulary:,} tokens",
        "context": f"{model.context_length:,} {plural(model.context_length, 'token')}",
        "encodings": ", ".join(f"{name} {human_bytes(nbytes)}" for name, nbytes in model.encodings.items()),
        "vision": f"{model.vision}, {human_bytes(model.vision_bytes)} of weights" if model.vision else "none",
        "memory": f"{human_bytes(model.weight_bytes)} for the weights, "
        f"{human_bytes(model.kv_bytes)} for a context of {model.context:,} {plural(model.context, 'token')}",
    }
    write("".join(f"{key:<14}{value}\n" for key, value in rows.items()))
    return 0
