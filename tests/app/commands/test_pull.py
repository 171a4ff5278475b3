"""`millstream pull` and `millstream downloads`: the real program against a Hub on loopback."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.commands.conftest import REPOSITORY
from tests.app.running import POSIX, WAIT, Program, Terminal, output, refusal
from tests.hub_faults import CutOff, Hang, Slow, Status, WrongBytes
from tests.hub_server import HubServer
from tests.registry.downloads.conftest import model_bytes

MODEL = f"{REPOSITORY}/Tiny-Q4_K_M"
FILE = f"{REPOSITORY}/Tiny-Q4_K_M.gguf"

Start = Callable[..., subprocess.Popen[str]]


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on standard error of a run that went well and wrote nothing else."""
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr.splitlines()


def came(models: Path, nbytes: int) -> None:
    """Wait until a download is noted to have brought so much."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for part in models.glob(".downloads/*/files/*.part"):
            if part.stat().st_size >= nbytes:
                return
        time.sleep(0.01)
    raise AssertionError(f"never came to {nbytes} bytes")


def test_a_pipe_is_told_at_the_start_and_at_the_end_and_what_is_there_is_not_fetched_again(
    hub: HubServer, outside: Program, models: Path
) -> None:
    begins, ends = said(outside("pull", REPOSITORY))
    assert begins.startswith(f"Downloading Q4_K_M of {REPOSITORY} (3.7 MB, 2 files") and "nearly as good" in begins
    assert ends == f"{MODEL} is in the library. To chat: millstream chat Tiny-Q4_K_M"
    assert {path.name for path in (models / MODEL).glob("*.gguf")} == {"Tiny-Q4_K_M.gguf", "mmproj-Tiny-F16.gguf"}
    spans = hub.fetched(FILE)
    assert said(outside("pull", REPOSITORY)) == [ends.replace("library", "library already")]
    assert hub.fetched(FILE) == spans


@POSIX
def test_an_interrupt_pauses_and_the_same_command_goes_on(
    hub: HubServer, start: Start, outside: Program, models: Path, tmp_path: Path
) -> None:
    hub.add("labs/Large", {"Large-Q8_0.gguf": model_bytes(tmp_path, 16)})
    hub.fault("labs/Large/Large-Q8_0.gguf", Slow(6e6))
    with start("pull", "labs/Large") as process:
        came(models, 5_000_000)
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, text) == (130, "")
    begins, paused = errors.splitlines()
    assert begins.startswith("Downloading Q8_0") and paused.startswith("Paused.")
    assert paused.endswith("millstream pull labs/Large")
    (left,) = json.loads(output(outside("downloads", "--json")))["downloads"]
    assert (left["name"], left["state"], left["sentence"]) == ("Large-Q8_0", "paused", "")
    assert 0 < left["done"] < left["bytes"]
    assert len(said(outside("pull", "labs/Large"))) == 2
    second = hub.fetched("labs/Large/Large-Q8_0.gguf")[1]
    assert second == (left["done"], left["bytes"])
    assert (models / "labs/Large/Large-Q8_0/Large-Q8_0.gguf").stat().st_size == left["bytes"]
    assert json.loads(output(outside("downloads", "--json"))) == {"downloads": []}


@POSIX
def test_an_interrupt_while_the_hub_does_not_answer_leaves_at_once(hub: HubServer, start: Start) -> None:
    hub.fault(f"/api/models/{REPOSITORY}", Hang())
    with start("pull", REPOSITORY) as process:
        end = time.monotonic() + WAIT
        while not hub.requests and time.monotonic() < end:
            time.sleep(0.01)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=WAIT) == ("", "")
    assert process.returncode == 130 and time.monotonic() - began < 5


@POSIX
def test_a_terminal_shows_how_far_it_is_and_how_fast(hub: HubServer, home: Path, tmp_path: Path) -> None:
    hub.add("labs/Large", {"Large-Q8_0.gguf": model_bytes(tmp_path, 8), "mmproj-Large-F16.gguf": b"x" * 1000})
    with Terminal(home, "pull", "labs/Large:Q8_0", "--rate", "4MB/s", COLUMNS="120") as terminal:
        terminal.until("Downloading Q8_0 of labs/Large (8.4 MB, 2 files")
        terminal.until("MB/s, ")
        terminal.until(" left, 0 of 2 files are there")
        terminal.until("labs/Large/Large-Q8_0 is in the library.")
        assert terminal.process.wait(WAIT) == 0
    lines = [line for line in re.split(r"\r\x1b\[K|\r?\n", terminal.shown) if " … " in line]
    percents = [int(found[1]) for line in lines if (found := re.search(r" … (\d+) %", line))]
    assert percents == sorted(percents) and len(set(percents)) > 3
    assert all(len(line) < 120 for line in lines)


@POSIX
def test_a_narrow_terminal_gets_one_line_that_fits(hub: HubServer, home: Path) -> None:
    with Terminal(home, "pull", REPOSITORY, "--rate", "3MB/s", COLUMNS="40") as terminal:
        terminal.until(f"{MODEL} is in the library.")
    lines = [line for line in re.split(r"\r\x1b\[K|\r?\n", terminal.shown) if " … " in line]
    assert lines and all(len(line) < 40 for line in lines)


@POSIX
def test_a_person_is_told_why_it_waits(hub: HubServer, home: Path) -> None:
    hub.fault(FILE, CutOff(1 << 20), times=3)
    hub.fault(FILE, CutOff(0))
    with Terminal(home, "pull", REPOSITORY, COLUMNS="100") as terminal:
        terminal.until("The connection")
        terminal.until("tries again in")
        terminal.until(f"{MODEL} is in the library.")


def test_a_limit_is_kept(hub: HubServer, inside: Program) -> None:
    began = time.monotonic()
    assert len(said(inside("pull", f"{REPOSITORY}:Q8_0", "--text-only", "--rate", "2MB/s"))) == 2
    assert 0.9 < time.monotonic() - began < 10


def test_what_cannot_go_on_ends_with_its_sentence_and_can_be_deleted(
    hub: HubServer, inside: Program, models: Path
) -> None:
    hub.fault(FILE, WrongBytes(), times=2)
    done = inside("pull", REPOSITORY)
    assert (done.returncode, done.stdout) == (2, "")
    _, why = done.stderr.splitlines()
    assert "is not the file that" in why and why.startswith("millstream: ")
    assert output(inside("list", "--json")) and not list(models.glob("labs/**/*.gguf"))
    seen = inside("downloads")
    assert seen.returncode == 0 and "Tiny-Q4_K_M" in seen.stdout and "is not the file that" in seen.stderr
    id = seen.stdout.split()[0]
    removed = inside("downloads", "--remove", id)
    assert removed.returncode == 0 and "Tiny-Q4_K_M is deleted" in removed.stderr
    assert not list(models.glob(".downloads/*"))
    assert "no unfinished download" in refusal(inside("downloads", "--remove", id))


def test_a_download_of_another_process_is_left_to_it(
    hub: HubServer, start: Start, inside: Program, models: Path
) -> None:
    hub.fault(FILE, Hang(1 << 20))
    with start("pull", REPOSITORY) as process:
        came(models, 1 << 20)
        done = inside("pull", REPOSITORY)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[-1] == "millstream: Another Millstream is downloading this model."
        assert "still being downloaded" in refusal(inside("downloads", "--remove", "Tiny-Q4_K_M"))
        hub.release()
        process.communicate(timeout=WAIT)
    assert process.returncode == 0


def test_a_name_chooses_and_the_object_says_what_came(hub: HubServer, inside: Program, models: Path) -> None:
    for tower, text in (("mmproj-tiny-f32.gguf", False), ("", True)):
        more = ("--text-only",) if text else ("--mmproj", tower)
        told = json.loads(output(inside("pull", f"{REPOSITORY}:tiny-q8_0.gguf", "--json", *more)))
        path = models / REPOSITORY / "Tiny-Q8_0" / "Tiny-Q8_0.gguf"
        assert (told["name"], told["path"], told["state"]) == (f"{REPOSITORY}/Tiny-Q8_0", str(path), "done")
        beside = {other.name for other in path.parent.glob("mmproj*")}
        assert beside == (set() if text else {"mmproj-Tiny-F32.gguf"})
    told = json.loads(output(inside("pull", f"{REPOSITORY}:Q8_0", "--json", "--text-only")))
    assert (told["state"], told["chosen"], told["why"]) == ("there", "Q8_0", "as named")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("labs/nowhere",), "no labs/nowhere on the Hub"),
        (("nowhere",), "not the name of a repository"),
        (("../../etc/passwd",), "not the name of a repository"),
        ((f"{REPOSITORY}:Q5_K_M",), r"has no “Q5_K_M”. It has: Q8_0 (2.6 MB), Q4_K_M (3.7 MB)."),
        ((f"{REPOSITORY}:Q",), "means several models"),
        ((REPOSITORY, "--mmproj", "other.gguf"), "It has: mmproj-Tiny-F16.gguf"),
        ((REPOSITORY, "--mmproj", "x", "--text-only"), "not allowed with"),
        ((REPOSITORY, "--rate", "0"), "nothing would ever come"),
        ((REPOSITORY, "--rate", "fast"), "not a size"),
        (("starter", "--text-only"), "comes as it is"),
    ],
)
def test_what_cannot_be_had_gets_one_sentence(
    hub: HubServer, inside: Program, models: Path, arguments: tuple[str, ...], why: str
) -> None:
    assert why in refusal(inside("pull", *arguments))
    assert not models.exists()


def test_the_token_is_sent_and_never_told(hub: HubServer, outside: Program, tmp_path: Path) -> None:
    hub.add("labs/Gated", {"Gated-Q8_0.gguf": model_bytes(tmp_path, 1)}, gated=True)
    for token, code in ((hub.token, 0), ("hf_wrongwrongwrongwrong", 2)):
        done = outside("pull", "labs/Gated", HF_TOKEN=token, MILLSTREAM_HOME=str(tmp_path / token[:5]))
        assert done.returncode == code, done.stderr
        assert token not in done.stdout + done.stderr
    hub.fault("labs/Gated/Gated-Q8_0.gguf", Status(403, {"X-Error-Message": f"not for {hub.token}"}), times=20)
    done = outside("pull", "labs/Gated", HF_TOKEN=hub.token)
    assert done.returncode == 2 and hub.token not in done.stderr


def test_the_starter_that_is_there_is_not_fetched(starter: Path, inside: Program, models: Path) -> None:
    models.mkdir()
    (models / starter.name).symlink_to(starter)
    assert said(inside("pull", "starter")) == ["starter is in the library already. To chat: millstream chat starter"]
    told = json.loads(output(inside("pull", "starter", "--json")))
    assert (told["name"], told["state"], told["path"]) == ("starter", "there", str(models / starter.name))
