"""The access token for the Hub: from the environment, else the system's keyring, else where `hf auth login` left one.

It is kept in the keyring alone, and never in settings, in the database, in logs or in errors. A keyring may ask the
person to unlock it, so these calls belong off the window's thread.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

import keyring
from keyring.errors import KeyringError, NoKeyringError, PasswordDeleteError

from engine.errors import SettingsError, StorageError
from registry.sources import hub_environment

SERVICE: Final = "millstream"
NAME: Final = "hub"
VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
NO_KEYRING: Final = (
    "This system has no keyring to keep an access token in: set the environment variable HF_TOKEN instead."
)

_TOKEN: Final = re.compile(r"[!-~]{8,4096}")
"""Signs that may be sent in a header. The Hub's tokens begin with hf_, those of a mirror may not."""


@dataclass(frozen=True)
class Token:
    """`value` is None where there is none. `origin` names the place that it is from: "HF_TOKEN", "keyring", "file".

    `problem` says in a sentence why a place could not be asked; the token may be from another place nevertheless.
    """

    value: str | None = field(repr=False)
    origin: str = ""
    problem: str = ""


def find() -> Token:
    """The token that is used, and where it is from."""
    problem = ""
    for name in VARIABLES:
        if text := os.environ.get(name, "").strip():
            if _TOKEN.fullmatch(text):
                return Token(text, name)
            problem = f"The environment variable {name} does not hold an access token: set it anew, or unset it."
    kept, keyring_problem = _kept()
    if kept:
        return Token(kept, "keyring", problem)
    problem = problem or keyring_problem
    left = _left_by_login()
    return Token(left, "file", problem) if left else Token(None, "", problem)


def get() -> str | None:
    """The token, or None."""
    return find().value


def set(token: str) -> None:
    """Keep a token in the keyring, in place of another.

    Raises `SettingsError` for what cannot be one, `StorageError` where the keyring does not take it.
    """
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise SettingsError(
            "That is not an access token. Copy it whole from the Hub's page of access tokens; it begins with hf_."
        )
    try:
        keyring.set_password(SERVICE, NAME, token)
    except NoKeyringError:
        raise StorageError(NO_KEYRING) from None
    except Exception as error:
        raise _refused(error) from None


def forget() -> None:
    """Remove the token from the keyring, if one is there. Raises `StorageError` where the keyring does not let go."""
    try:
        if keyring.get_password(SERVICE, NAME) is not None:
            keyring.delete_password(SERVICE, NAME)
    except (NoKeyringError, PasswordDeleteError) as error:
        if isinstance(error, PasswordDeleteError):
            raise _refused(error) from None
    except Exception as error:
        raise _refused(error) from None


def _kept() -> tuple[str | None, str]:
    try:
        token = (keyring.get_password(SERVICE, NAME) or "").strip()
    except NoKeyringError:
        return None, NO_KEYRING
    except Exception as error:
        return None, str(_refused(error))
    return (token if _TOKEN.fullmatch(token) else None), ""


def _refused(error: Exception) -> StorageError:
    """The backends raise errors of the libraries below them, too. Their text may hold what was to be kept."""
    reason = "it is locked, or does not answer" if isinstance(error, KeyringError) else "it does not work here"
    return StorageError(
        f"The system's keyring cannot be used ({reason}): unlock it and try again, or set the environment variable "
        "HF_TOKEN."
    )


def _left_by_login() -> str | None:
    try:
        with hub_environment.token_file().open("rb") as file:
            text = file.read(8192).decode("ascii", "replace").strip()
    except OSError:
        return None
    return text if _TOKEN.fullmatch(text) else None
