"""`millstream probe`: what this machine is, for choosing a model and for reports of faults."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from app import options
from app.console import Progress, columns, write
from app.places import measurements_file

NAME = "probe"
SUMMARY = "tell what this machine has: processor, memory, drive, graphics cards"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure how fast the drive of the models folder is read, which takes some seconds",
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from engine import Cancel
    from registry import probe
    from registry.library import Library

    folder, measurements, cancel = Library.default().root, measurements_file(), Cancel()
    if arguments.measure:
        line = Progress()
        line.show("Measuring the drive", 0, 0)
        try:
            probe.measure(folder, measurements, cancel)
        finally:
            line.clear()
    found = probe.probe(folder, measurements, cancel)
    write(probe.to_json(found) + "\n" if arguments.json else probe.report(found, columns()))
    return 0
