"""`millstream models`: what is in the library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from app.console import write
from engine import human_bytes

NAME = "models"
SUMMARY = "list the models in the library"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no options."""


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library

    library = Library.default()
    models = library.list()
    width = max((len(model.name) for model in models), default=0)
    write("".join(f"{model.name:<{width}}  {human_bytes(model.nbytes):>9}\n" for model in models))
    if not models and sys.stderr.isatty():
        print(f"There are no models in {library.root} yet: chat fetches the starter.", file=sys.stderr)
    return 0
