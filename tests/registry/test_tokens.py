"""The access token: where it is kept, and which one counts. By the real `keyring`, with backends in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.errors import KeyringLocked, PasswordDeleteError

from engine.errors import SettingsError, StorageError
from registry import tokens

ONE, OTHER = "hf_" + "one" * 8, "hf_" + "other" * 6


class MemoryKeyring(KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


class LockedKeyring(MemoryKeyring):
    """One whose person does not unlock it; the error repeats what it was given, as some do."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked(f"locked: {ONE}")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"locked: {password}")


class BrokenKeyring(MemoryKeyring):
    """One whose system library fails below it."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("D-Bus went away")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"D-Bus went away with {password}")


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    for name in tokens.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HF_HOME", str(folder))
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


@pytest.fixture
def memory() -> MemoryKeyring:
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    return backend


def test_a_token_is_kept_in_the_keyring_and_forgotten(memory: MemoryKeyring) -> None:
    assert tokens.get() is None
    tokens.set(f" {ONE}\n")
    assert memory.kept == {("millstream", "hub"): ONE}
    assert (tokens.get(), tokens.find().origin) == (ONE, "keyring")
    tokens.set(OTHER)
    assert tokens.get() == OTHER
    tokens.forget()
    assert memory.kept == {} and tokens.get() is None
    tokens.forget()


def test_the_environment_counts_before_the_keyring(memory: MemoryKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.set(ONE)
    monkeypatch.setenv("HF_TOKEN", f"{OTHER}\n")
    assert (tokens.get(), tokens.find().origin) == (OTHER, "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "")
    assert tokens.get() == ONE


def test_what_login_left_counts_last(memory: MemoryKeyring, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "token").write_text(f"{OTHER}\n")
    assert (tokens.get(), tokens.find().origin) == (OTHER, "file")
    tokens.set(ONE)
    assert tokens.get() == ONE
    tokens.forget()
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    assert tokens.get() is None


def test_a_variable_that_holds_no_token_is_told(memory: MemoryKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.set(ONE)
    monkeypatch.setenv("HF_TOKEN", "my token\nX-Evil: 1")
    found = tokens.find()
    assert found.value == ONE and "HF_TOKEN does not hold" in found.problem and "Evil" not in found.problem


@pytest.mark.parametrize("text", ["", "hf", "two words here", "hf_ümlautümlaut", "hf_line\nbreak-line", "x" * 5000])
def test_what_is_no_token_is_refused_and_not_repeated(memory: MemoryKeyring, text: str) -> None:
    with pytest.raises(SettingsError, match="not an access token") as caught:
        tokens.set(text)
    assert memory.kept == {} and (len(text) < 4 or text not in str(caught.value))


def test_without_a_keyring_there_is_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.set_keyring(NoKeyring())
    assert tokens.find() == tokens.Token(None, "", tokens.NO_KEYRING)
    with pytest.raises(StorageError, match="HF_TOKEN"):
        tokens.set(ONE)
    tokens.forget()
    monkeypatch.setenv("HF_TOKEN", ONE)
    assert tokens.get() == ONE


@pytest.mark.parametrize(("backend", "why"), [(LockedKeyring, "is locked"), (BrokenKeyring, "does not work here")])
def test_a_keyring_that_fails_gives_a_sentence_without_the_token(backend: type[MemoryKeyring], why: str) -> None:
    keyring.set_keyring(backend())
    found = tokens.find()
    assert found.value is None and why in found.problem and ONE not in found.problem
    for call in (lambda: tokens.set(ONE), tokens.forget):
        with pytest.raises(StorageError, match=why) as caught:
            call()
        assert ONE not in str(caught.value) and caught.value.__cause__ is None


def test_a_token_is_not_shown(memory: MemoryKeyring) -> None:
    tokens.set(ONE)
    assert ONE not in repr(tokens.find())
