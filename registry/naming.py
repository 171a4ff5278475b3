"""The names by which a person asks for a model that is elsewhere: owner/name, or owner/name:part."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import DownloadError, ModelFileError
from registry.items import Offer
from registry.paths import safe_id


def remote_name(name: str) -> tuple[str, str] | None:
    """A repository's id, and the part of it that is meant, "" for all; `None` for what is no such name."""
    id, _, part = name.partition(":")
    try:
        return safe_id(id), part.strip()
    except DownloadError:
        return None


def offer_named(part: str, id: str, offered: Sequence[Offer]) -> Offer:
    """The one of a repository's offers that `part` names: the quantisation, a file, or the file's path.

    Raises ModelFileError where there is none, or several.
    """
    asked = part.casefold()
    found = [offer for offer in offered if offer.name.casefold() == asked]
    if not found:
        found = [
            offer
            for offer in offered
            if any(asked in (file.path.casefold(), file.name.casefold()) for file in offer.weights)
        ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(offer.name for offer in found or offered)
    if found:
        raise ModelFileError(f"“{part}” means several models of {id}: {names}. Choose one of them.")
    has = f"It offers {names}." if names else "It offers no model that can be loaded here."
    raise ModelFileError(f"{id} has no model “{part[:80]}”. {has}")
