"""Pictures from the command line, with a tiny model that sees."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from app.cli import main
from tests.tiny_seeing import write_seeing

ROOT = Path(__file__).resolve().parents[2]
WAIT = 120
GREEDY = ("--temperature", "0", "--max-tokens", "3", "--threads", "1")

Program = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("see")
    write_seeing(folder)
    return str(folder / "tiny.gguf")


@pytest.fixture
def millstream(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """Runs a command: → its code, its output and its errors."""

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        code = main(arguments)
        return code, *capfd.readouterr()

    return run


def picture(path: Path, colour: str, size: tuple[int, int] = (24, 16)) -> Path:
    Image.new("RGB", size, colour).save(path, "PNG")
    return path


def test_a_picture_is_named_as_it_is_or_as_a_shell_would_write_it(
    millstream: Program, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    odd = picture(tmp_path / "a mill's  wheel.png", "red")
    plain = picture(tmp_path / "山 é.png", "red")
    expected = millstream("run", model, *GREEDY, "-p", "What?", "--image", str(odd))
    assert expected[0] == 0 and expected[2] == ""
    blind = millstream("run", model, *GREEDY, "-p", "What?")
    assert blind[1] != expected[1]
    ways = [str(odd), f'"{odd}"', "~/a mill's  wheel.png", str(plain), f"'{plain}'", "~/山 é.png"]
    if sys.platform != "win32":
        ways.append(str(plain).replace(" ", "\\ "))
    for way in ways:
        code, reply, errors = millstream("chat", model, *GREEDY, stdin=f"/image  {way} \nWhat?\n")
        assert (code, reply.strip(), errors) == (0, expected[1].strip(), ""), way


@pytest.mark.parametrize("name", ["~nosuchperson/mill.png", "'mill.png", "no such.png", "\ud7ff.png", "a\0b", "/", ""])
def test_a_picture_that_is_not_there_gets_one_sentence_and_the_chat_goes_on(
    millstream: Program, model: str, name: str
) -> None:
    code, reply, errors = millstream("chat", model, *GREEDY, stdin=f"/image {name}\nWhat?\n")
    assert code == 2 and reply.strip()
    assert errors.startswith("millstream: ") and errors.count("\n") == 1


def test_twenty_pictures_in_a_conversation_that_holds_fewer(millstream: Program, model: str, tmp_path: Path) -> None:
    path = picture(tmp_path / "mill.png", "red", (64, 48))
    code, _, errors = millstream("chat", model, *GREEDY, stdin=f"/image {path}\n" * 20 + "What?\nAnd now?\n")
    assert code == 2
    assert "leave pictures away" in errors and errors.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "chat", "info", "bench", "fingerprint"])
def test_a_tower_that_is_not_there_is_refused_by_every_command(millstream: Program, model: str, command: str) -> None:
    more = {"run": ("-p", "a"), "fingerprint": ("-p", "a", "-n", "1")}.get(command, ())
    code, _, errors = millstream(command, model, *more, "--mmproj", "no-such.gguf")
    assert (code, errors) == (2, "millstream: There is no file no-such.gguf.\n")


def test_a_picture_has_no_place_in_raw_text(millstream: Program, model: str) -> None:
    code, _, errors = millstream("run", model, "-p", "a", "--raw", "--image", "mill.png")
    assert code == 2 and "leave --image or --raw away" in errors


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_ends_while_it_looks_at_a_picture(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    write_seeing(tmp_path, pixels=(256, 2**24), context=2**15)
    path = picture(tmp_path / "large.png", "red", (1400, 1000))
    command = ["run", str(tmp_path / "tiny.gguf"), "-p", "?", "--image", str(path), "--max-patches", "65536"]
    pipe = subprocess.PIPE
    words = [sys.executable, "-m", "app", *command, "--context", "32768", "--threads", "1"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT) as process:
        time.sleep(4)
        assert process.poll() is None
        process.send_signal(sent)
        told = time.monotonic()
        _, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, errors) == (code, b"")
    assert time.monotonic() - told < 10
