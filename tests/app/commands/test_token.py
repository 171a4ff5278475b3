"""`millstream token`: kept, forgotten, and never shown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest

from tests.app.commands.conftest import NO_KEYRING
from tests.app.running import POSIX, Program, Terminal, refusal
from tests.hub_server import HubServer
from tests.registry.test_tokens import LockedKeyring, MemoryKeyring

TOKEN = "hf_" + "secret" * 5


@pytest.fixture(autouse=True)
def memory(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryKeyring]:
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    before, backend = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_it_is_read_from_a_pipe_told_by_its_origin_and_forgotten(inside: Program, memory: MemoryKeyring) -> None:
    done = [inside("token", "set", stdin=f"{TOKEN}\n")]
    assert memory.kept == {("millstream", "hub"): TOKEN}
    done.append(inside("token", "show"))
    assert done[-1].stdout == "The token is from the system's keyring.\n"
    done.append(inside("token", "show", "--json"))
    assert json.loads(done[-1].stdout) == {"origin": "keyring", "problem": ""}
    done.append(inside("token", "forget"))
    assert memory.kept == {}
    done.append(inside("token", "show"))
    assert "no token" in done[-1].stderr
    assert all(each.returncode == 0 and TOKEN not in each.stdout + each.stderr for each in done)


def test_another_token_that_counts_is_told(
    inside: Program, memory: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "other" * 5)
    for what in ("set", "forget"):
        assert "environment variable HF_TOKEN" in inside("token", what, stdin=TOKEN).stderr
    assert inside("token", "show").stdout == "The token is from the environment variable HF_TOKEN.\n"


def test_what_is_no_token_and_what_the_keyring_refuses_is_not_repeated(inside: Program) -> None:
    for text in ("", "my secret phrase", "geheimnisü"):
        said = refusal(inside("token", "set", stdin=text))
        assert "not an access token" in said and (not text or text not in said)
    keyring.set_keyring(LockedKeyring())
    assert TOKEN not in refusal(inside("token", "set", stdin=TOKEN))
    assert "<" not in refusal(inside("token", "choose"))


def test_who_is_asked_for_a_token_is_told_the_command(hub: HubServer, inside: Program) -> None:
    hub.add("labs/Gated", {"Gated-Q8_0.gguf": b"x"}, gated=True)
    for command in ("pull", "fit"):
        for name in ("labs/Gated", "labs/Hidden"):
            done = inside(command, name)
            assert done.returncode == 2 and done.stderr.endswith(" millstream token set\n")
    assert "token set" not in refusal(inside("pull", "nothing"))


def test_where_none_can_be_kept_nobody_is_told_to_keep_one(
    home: Path, inside: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "millstream token set" in inside("token", "show").stderr
    monkeypatch.setenv("HF_TOKEN", "not one")
    said = inside("token", "show").stderr
    assert "HF_TOKEN" in said and "no token" in said and "token set" not in said


@POSIX
def test_a_person_types_it_unseen(home: Path) -> None:
    with Terminal(home, "token", "set", PYTHON_KEYRING_BACKEND=NO_KEYRING) as terminal:
        terminal.until("Access token (it is not shown): ")
        terminal.type(f"{TOKEN}\r")
        terminal.until("no keyring")
        assert terminal.process.wait() == 2
    assert TOKEN not in terminal.shown and "secret" not in terminal.shown
