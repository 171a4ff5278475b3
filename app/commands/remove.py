"""`millstream remove`: a model out of the library."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from app import options
from app.console import confirm, tell, write
from engine import human_bytes

NAME = "remove"
SUMMARY = "delete a model from the library"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=options.text, metavar="NAME", help="a name that millstream list tells")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library

    library = Library.default()
    model = library.find(arguments.model)
    removal = library.removal(model.name)
    freed = human_bytes(removal.frees)
    if not arguments.yes:
        what = (
            f"Take {model.name} out of the library, and leave its files where they are?"
            if model.linked
            else f"Delete {model.name} from the library, which frees {freed}?"
        )
        if not confirm(what):
            tell("Nothing was deleted.")
            return 0
    removal.run()
    if arguments.json:
        write(json.dumps({"name": model.name, "freed": removal.frees}, ensure_ascii=False) + "\n")
    elif model.linked:
        tell(f"{model.name} is out of the library. Its files stay where they are ({model.path}).")
    else:
        tell(f"{model.name} is deleted: {freed} are free again.")
    return 0
