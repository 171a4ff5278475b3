"""What the environment says of the Hub, looked up at each call: the names and their order are `huggingface_hub`'s own
(its "Environment variables"), which itself reads them only once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2

from engine.errors import DownloadError

ENDPOINT: Final = "https://huggingface.co"
TRUE: Final = ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """Where the Hub is: HF_ENDPOINT names a mirror. Raises `DownloadError` where that is no web address."""
    found = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or ENDPOINT
    try:
        urlsplit(found)  # which refuses some addresses that the client takes
        address = httpx2.URL(found)
        sound = address.scheme in ("https", "http") and bool(address.host)
    except (httpx2.InvalidURL, ValueError):
        sound = False
    if not sound:
        raise DownloadError("HF_ENDPOINT is not a web address: it begins with https://, or is left unset for the Hub.")
    return found


def page(repository: str) -> str:
    """The address of a repository's page, for a browser: a mirror's name and password stay out of it. Raises as
    `endpoint`."""
    return f"{str(httpx2.URL(endpoint()).copy_with(userinfo=b'', query=None)).rstrip('/')}/{repository}"


def offline() -> bool:
    """Whether the Hub must not be asked: HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE."""
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in TRUE


def home() -> Path:
    """The folder that the Hub's own tools keep their things in: HF_HOME."""
    if set_home := os.environ.get("HF_HOME"):
        return _path(set_home)
    return _path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"


def cache() -> Path:
    """The folder of what those tools have downloaded: HF_HUB_CACHE, else `hub` in their home."""
    found = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _path(found) if found else home() / "hub"


def token_file() -> Path:
    """Where `hf auth login` leaves a token: HF_TOKEN_PATH, else `token` in their home."""
    found = os.environ.get("HF_TOKEN_PATH")
    return _path(found) if found else home() / "token"


def _path(text: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(text)))
