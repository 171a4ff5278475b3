"""`millstream models`: what is in the library."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from app import options
from app.console import complain, write
from engine import human_bytes

NAME = "models"
SUMMARY = "list the models in the library"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library

    library = Library.default()
    models = library.list()
    if arguments.json:
        listed = [{"name": model.name, "path": str(model.path), "bytes": model.nbytes} for model in models]
        write(json.dumps({"folder": str(library.root), "models": listed}, ensure_ascii=False) + "\n")
        return 0
    width = max((len(model.name) for model in models), default=0)
    write("".join(f"{model.name:<{width}}  {human_bytes(model.nbytes):>9}\n" for model in models))
    if not models:
        complain(f"There are no models in {library.root} yet; `millstream run starter -p Hello` fetches the starter.")
    return 0
