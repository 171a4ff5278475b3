"""The commands, one module each: name, summary, options, and what is done."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Protocol

from app.commands import (
    bench,
    chat,
    downloads,
    fingerprint,
    fit,
    importing,
    info,
    listing,
    plan,
    probe,
    pull,
    remove,
    run,
    search,
    token,
    verify,
)


class Command(Protocol):
    """What a command's module offers."""

    NAME: str
    SUMMARY: str
    """One line without a full stop."""

    def parents(self) -> Sequence[argparse.ArgumentParser]:
        """Groups of options that it shares with others."""
        ...

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of its own."""
        ...

    def execute(self, arguments: argparse.Namespace) -> int:
        """Do it: → the exit code. Refusals are raised as MillstreamError."""
        ...


COMMANDS: tuple[Command, ...] = (
    *(chat, run, search, pull, downloads, listing, importing, verify, remove, token),
    *(info, fit, plan, probe, bench, fingerprint),
)
ALIASES = {listing.NAME: ("models",)}
"""Other names of commands."""
