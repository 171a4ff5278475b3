"""What the Hub or the network answered instead of what was asked for, as one sentence and the kind that says what next.

Nothing from a server's text and no address with a query is repeated.
"""

from __future__ import annotations

import email.utils
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx2
from huggingface_hub.errors import OfflineModeIsEnabled

from engine.errors import DownloadError
from registry.scrub import scrub
from registry.sources.source import AccessError, BusyError, GoneError, OfflineError

TOLD_OFFLINE: Final = "HF_HUB_OFFLINE is set, so the Hub is not asked: unset it to search and to download."
LONGEST: Final = 24 * 3600.0
"""Seconds of waiting that a server may ask for."""

_USED_UP: Final = re.compile(r"\br=0;\s*t=(\d{1,9})\b")
"""In a RateLimit header (draft-ietf-httpapi-ratelimit-headers-09): none remaining, and the seconds until there are."""


@dataclass(frozen=True)
class Asking:
    """What is asked for, to be named in a sentence: a file of a repository, the repository, or the Hub's search.

    `page` is the address where a person signs in.
    """

    page: str
    has_token: bool
    repository: str = ""
    path: str = ""

    @property
    def what(self) -> str:
        if self.path:
            return f"{self.path} of {self.repository}"
        return self.repository or "the search"

    def changed(self) -> GoneError:
        return GoneError(f"{self.what} was changed on the Hub since it was looked up. Look the model up again.")

    def not_the_hub(self) -> OfflineError:
        return OfflineError(
            f"The network answered with a page of its own instead of {self.what}. Open a web page in the browser to "
            "see whether you have to sign in to this network, and try again."
        )


def of_answer(status: int, headers: Mapping[str, str], asking: Asking, from_hub: bool) -> DownloadError:
    """The error for an answer of a status from 400 on. `from_hub` is False for where the Hub sent the client on to."""
    code = headers.get("X-Error-Code", "")
    what, has_token = asking.what, asking.has_token
    if code == "GatedRepo":
        then = "then try again" if has_token else "then enter an access token of yours, and try again"
        return AccessError(
            f"{asking.repository} is only for people who agreed to its conditions. Open {asking.page}/"
            f"{asking.repository} in the browser, sign in and agree, {then}."
        )
    if status == 429:
        return BusyError("The Hub asks to wait: it was asked too often in a short time.", _seconds(headers))
    if status in (408, 425) or status >= 500:
        return BusyError(f"The Hub cannot answer just now (status {status}). Try again later.", _seconds(headers))
    if status == 407:
        return AccessError(
            "The proxy asks for a name and a password: put them into HTTPS_PROXY, as http://name:password@host:port.",
            by_token=False,
        )
    if status == 416:
        return asking.changed()
    if not from_hub and status in (401, 403, 404):
        return BusyError(f"The address that the Hub gave for {what} does not work (status {status}). Try again.")
    if code == "EntryNotFound":
        return GoneError(f"{what} does not exist on the Hub, or no longer. Look the model up again.")
    if code == "RevisionNotFound":
        return GoneError(f"{asking.repository} has no such version on the Hub, or no longer. Look the model up again.")
    if status == 404 or code == "RepoNotFound":
        return GoneError(
            f"There is no {what} on the Hub, or it is private. Check how it is written"
            + ("." if has_token else "; for a private one, enter an access token that may read it."),
            hidden=not has_token,
        )
    if status == 401:
        return AccessError(
            f"The Hub does not accept the access token. Make a new one at {asking.page}/settings/tokens, and enter it."
            if has_token
            else f"The Hub wants an access token for {what}. Make one at {asking.page}/settings/tokens, and enter it."
        )
    if status in (403, 451):
        return AccessError(
            f"The Hub refuses {what} (status {status}): the account, or its access token, may not read it. Look at "
            f"{asking.page}/{asking.repository} in the browser."
        )
    return DownloadError(f"The Hub answered with status {status} when asked for {what}. Try again later.")


def of_exception(error: Exception, asking: Asking, host: str) -> DownloadError:
    """The error for what the client raised on the way to `host`."""
    if isinstance(error, OfflineModeIsEnabled):
        return OfflineError(TOLD_OFFLINE)
    if _is_of_certificates(error):
        return DownloadError(
            f"The connection to {host} is not safe: its certificate could not be verified. A wrong clock, a proxy or a "
            "virus scanner may be why. Where your network has a certificate of its own, name its file in SSL_CERT_FILE."
        )
    if isinstance(error, httpx2.ProxyError):
        return OfflineError("The proxy does not let the connection through. Check HTTPS_PROXY and HTTP_PROXY.")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return OfflineError(f"{host} cannot be reached. Check the network connection, and the proxy if there is one.")
    if isinstance(error, httpx2.TimeoutException):
        return OfflineError(f"{host} stopped answering while {asking.what} was read. Try again.")
    if isinstance(error, httpx2.TransportError | OSError | RuntimeError):
        return OfflineError(f"The connection to {host} broke while {asking.what} was read. Try again.")
    return DownloadError(
        f"{asking.what} could not be fetched from {host}: {scrub(str(error)) or type(error).__name__}."
    )


def _is_of_certificates(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _seconds(headers: Mapping[str, str]) -> float | None:
    """How long to wait, from Retry-After (RFC 9110: seconds or a date), else from the Hub's RateLimit header."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST)
    if text:
        try:
            return min(max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time()), LONGEST)
        except (ValueError, OverflowError):
            return None
    used_up = _USED_UP.search(headers.get("RateLimit", ""))
    return min(float(used_up[1]), LONGEST) if used_up else None
