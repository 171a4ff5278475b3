"""`millstream search`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.app.commands.conftest import REPOSITORY
from tests.app.running import POSIX, Program, Terminal, output, refusal
from tests.hub_faults import Status
from tests.hub_server import HubServer


@pytest.fixture(autouse=True)
def another(hub: HubServer) -> None:
    hub.add("far/Other-GGUF", {"a.gguf": b"x"}, gated=True, downloads=7, licence="evil\x1b[31m")


def test_a_pipe_gets_a_table(inside: Program) -> None:
    head, *rows = output(inside("search", "gguf")).splitlines()
    assert head.split() == ["repository", "downloads", "licence", "updated"]
    assert rows[0].split() == [REPOSITORY, "12,345", "apache-2.0", "2026-05-31"]
    assert rows[1].split() == ["far/Other-GGUF", "7", "evil\ufffd[31m", "2026-05-31", "gated"]
    assert len(output(inside("search", "gguf", "--limit", "1")).splitlines()) == 2


def test_the_object_holds_what_the_hub_tells(inside: Program) -> None:
    told = json.loads(output(inside("search", "tiny", "gguf", "--json")))
    assert told["words"] == "tiny gguf"
    assert [(each["id"], each["downloads"], each["gated"]) for each in told["repositories"]] == [
        (REPOSITORY, 12345, False)
    ]
    found = json.loads(output(inside("search", "Other", "--json")))["repositories"]
    assert [(each["id"], each["gated"]) for each in found] == [("far/Other-GGUF", True)]


def test_what_the_engine_does_not_know_is_marked(hub: HubServer, inside: Program) -> None:
    hub.add("far/Strange-GGUF", {"a.gguf": b"x"}, family="mamba9", downloads=99_999)
    hub.add("far/Seeing-GGUF", {"a.gguf": b"x"}, family="clip", downloads=6)
    marks = {row.split()[0]: "cannot run here" in row for row in output(inside("search", "gguf")).splitlines()[1:]}
    assert marks == {"far/Strange-GGUF": True, REPOSITORY: False, "far/Other-GGUF": False, "far/Seeing-GGUF": False}


@POSIX
def test_a_person_is_told_how_to_go_on(hub: HubServer, home: Path) -> None:
    with Terminal(home, "search", "gguf") as terminal:
        terminal.until(f"To download one: millstream pull {REPOSITORY}")
        terminal.until("millstream token set")


def test_nothing_found_and_no_hub_are_told(hub: HubServer, inside: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    done = inside("search", "no-such-thing")
    assert (done.returncode, done.stdout) == (0, "") and "“no-such-thing”" in done.stderr
    assert "--limit" in refusal(inside("search", "x", "--limit", "0"))
    hub.fault("/api/models", Status(503))
    refusal(inside("search", "gguf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refusal(inside("search", "gguf"))
