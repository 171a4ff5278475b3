"""What holds for every command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest

from engine.planning import SHORTEST
from engine.types import DEFAULT_CONTEXT
from engine.units import parse_bytes
from tests.app.running import COMMANDS, OF_THE_LIBRARY, POSIX, ROOT, WAIT, Program, Terminal, output, refusal


def test_the_version_is_that_of_the_installation_and_0_outside_one(
    millstream: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"1.2 of {name}")
    assert output(millstream("--version")) == "millstream 1.2 of millstream\n"

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert output(millstream("--version")) == "millstream 0\n"


def test_text_that_is_not_utf_8_is_refused(millstream: Program) -> None:
    for option in ("-p", "--system", "--stop"):
        assert f"{option}" in (said := refusal(millstream("run", "tiny", "-p", "a", option, "a\udcff")))
        assert "not UTF-8" in said
    done = millstream("chat", "tiny", "--max-tokens", "3", stdin=b"Hello\n\xff\n")
    assert done.returncode == 2 and done.stdout
    assert done.stderr == "millstream: Standard input is not UTF-8 text.\n"


def test_what_a_terminal_would_obey_is_not_printed(millstream: Program) -> None:
    for name in ("\x1b[31mred", "a\x07\x9b1mb", "two\nlines"):
        said = refusal(millstream("run", name, "-p", "a"))
        assert said.removesuffix("\n").isprintable()


def test_help_begins_with_a_capital_and_names_defaults(millstream: Program) -> None:
    for command in COMMANDS:
        description = output(millstream(command, "--help")).split("\n\n")[1]
        assert description[0].isupper() and description.endswith(".")
    told = " ".join(output(millstream("run", "--help")).split())
    for option in ("--threads N", "--context N", "--max-tokens N", "--seed N"):
        assert "(default: " in told.split(f" {option} ")[-1].split(" --")[0]


@POSIX
def test_a_reply_that_was_cut_off_is_marked_for_a_person(library: Path) -> None:
    with Terminal(library, "run", "tiny", "-p", "Hello", "--max-tokens", "1") as terminal:
        terminal.until("[stopped at 1 token]")
    with Terminal(library, "run", "tiny", "-p", "Hello", "--context", "40", "--temperature", "0") as terminal:
        terminal.until("[cut off: the context of 40 tokens is full; --context takes up to 256]")
    with Terminal(library, "chat", "tiny", "--context", "40", "--temperature", "0") as terminal:
        terminal.until("> ")
        terminal.type("Hello\r")
        terminal.until("[cut off: the context of 40 tokens is full; /new begins again]")


def test_a_reply_that_the_context_cut_off_is_marked_for_a_pipe_too(millstream: Program) -> None:
    for prompt, context, way_out in (("Hello", "40", "; --context takes up to 256"), ("x" * 200, "256", "")):
        done = millstream("run", "tiny", "-p", prompt, "--temperature", "0", "--context", context)
        assert done.returncode == 0 and done.stdout
        assert done.stderr == f"[cut off: the context of {context} tokens is full{way_out}]\n"


@pytest.mark.parametrize("command", [("run", "-p", "a", "--max-tokens", "1"), ("fingerprint", "-p", "a", "-n", "1")])
def test_more_memory_than_is_free_is_said_where_the_model_is_opened(
    millstream: Program, command: tuple[str, ...]
) -> None:
    name, *rest = command
    done = millstream(name, "tiny", *rest, "--ram", "1000TB")
    said = re.fullmatch(r"millstream: 1\.0 PB were granted, (.*) are free: the plan uses that\.\n", done.stderr)
    assert done.returncode == 0 and said and parse_bytes(said[1]) < 10**15
    assert output(millstream(name, "tiny", *rest, "--ram", "100MB"))


@POSIX
@pytest.mark.parametrize("command", [("run", "-p", "Hello", "--max-tokens", "1"), ("chat",)])
def test_a_shorter_context_is_said_to_a_person_once(library: Path, starter: Path, command: tuple[str, ...]) -> None:
    name, *rest = command
    less = "Memory is short: the context is 1,024 tokens instead of 8,192."
    with Terminal(library, name, str(starter), *rest, "--ram", "60MB") as terminal:
        terminal.until(less)
        terminal.until("> " if name == "chat" else "[stopped at 1 token]")
        assert terminal.shown.count(less) == 1


def test_a_shorter_context_is_not_said_to_a_pipe(starter: Path, millstream: Program) -> None:
    output(millstream("run", str(starter), "-p", "Hello", "--max-tokens", "1", "--ram", "60MB"))


MISTAKES = {
    "an unknown command": ("frobnicate",),
    "an unknown option": ("run", "tiny", "-p", "a", "--frobnicate"),
    "no prompt": ("run", "tiny"),
    "an empty prompt": ("run", "tiny", "-p", "", "--raw"),
    "an unknown model": ("info", "no such model"),
    "no new tokens": ("fingerprint", "tiny", "-p", "a", "-n", "0"),
    "a number of tokens below nothing": ("fingerprint", "tiny", "-p", "a", "-n", "-4"),
    "no threads": ("run", "tiny", "-p", "a", "--threads", "0"),
    "too many threads": ("bench", "tiny", "--threads", "1000000000"),
    "no context": ("run", "tiny", "-p", "a", "--context", "0"),
    "a context beyond the model's": ("run", "tiny", "-p", "a", "--context", "100000000000"),
    "no chunk": ("fingerprint", "tiny", "-p", "a", "-n", "1", "--chunk", "-1"),
    "a cache that is not known": ("info", "tiny", "--kv", "q3"),
    "no cache": ("info", "tiny", "--kv", ""),
    "a temperature that is no number": ("run", "tiny", "-p", "a", "--temperature", "nan"),
    "a temperature below zero": ("run", "tiny", "-p", "a", "--temperature", "-1"),
    "no tokens at most": ("run", "tiny", "-p", "a", "--max-tokens", "0"),
    "a seed below zero": ("chat", "tiny", "--seed", "-1"),
    "an empty stop string": ("run", "tiny", "-p", "a", "--stop", ""),
    "a prompt longer than the context": ("run", "tiny", "-p", "x" * 300),
    "a fingerprint longer than the context": ("fingerprint", "tiny", "-p", "a", "-n", "257"),
    "a measurement longer than the context": ("bench", "tiny"),
    "a measurement of everything": ("bench", "tiny", "--prompt-tokens", "1000000000000000"),
    "a measurement of nothing": ("bench", "tiny", "--tokens", "0"),
    "a peer without a name": ("bench", "tiny", "--vs", ""),
    "a peer that does not exist": ("bench", "tiny", "--vs", "no-such-program-at-all"),
    "no rounds": ("bench", "tiny", "--vs", "peer", "--rounds", "0"),
    "no time": ("bench", "tiny", "--vs", "peer", "--limit", "0"),
    "more time than can be counted": ("bench", "tiny", "--vs", "peer", "--limit", "1" + "0" * 30),
    "an effort that is not known": ("run", "tiny", "-p", "a", "--reasoning", "huge"),
    "an effort that the model cannot be told": ("run", "tiny", "-p", "a", "--reasoning", "low"),
    "thinking of a model that does not think": ("run", "tiny", "-p", "a", "--thinking"),
    "a value for thinking": ("chat", "tiny", "--thinking=yes"),
    "thinking in raw text": ("run", "tiny", "-p", "a", "--raw", "--no-thinking"),
    "tools in raw text": ("run", "tiny", "-p", "a", "--raw", "--tools", "tools.json"),
    "rounds without a peer": ("bench", "tiny", "--rounds", "3"),
    "a size without a number": ("info", "tiny", "--ram", "GB"),
    "a size below zero": ("info", "tiny", "--ram=-5GB"),
    "no size": ("run", "tiny", "-p", "a", "--ram", ""),
    "a size that is no number": ("run", "tiny", "-p", "a", "--ram", "nan"),
    "a size that is endless": ("chat", "tiny", "--vram", "1e400"),
    "memory for nothing": ("fingerprint", "tiny", "-p", "a", "-n", "1", "--ram", "4"),
    "more memory than can be counted": ("info", "tiny", "--ram", "9" * 5000),
    "no threads that read": ("info", "tiny", "--io-threads", "0"),
    "a part of a thread": ("info", "tiny", "--io-threads", "1.5"),
    "no rows": ("info", "tiny", "--block-rows", "0"),
    "rows without end": ("info", "tiny", "--block-rows", "9" * 5000),
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_sentence(millstream: Program, arguments: tuple[str, ...]) -> None:
    refusal(millstream(*arguments))


def test_a_mistake_leaves_the_program_with_code_2_and_no_traceback(program: Program, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    for arguments in (("frobnicate",), ("info", str(tmp_path / "bad.gguf")), ("run", "tiny", "-p", "x" * 300)):
        refusal(program(*arguments))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(millstream: Program, command: str) -> None:
    assert output(millstream(command, "--help")).startswith(f"usage: millstream {command}")
    assert command in output(millstream("--help"))


def test_every_command_that_takes_a_model_takes_the_same_options(millstream: Program) -> None:
    for command in set(COMMANDS) - {"probe", *OF_THE_LIBRARY}:
        told = output(millstream(command, "--help"))
        for option in ("--threads N", "--context N", "--kv FORM", "--chunk N", "--ram SIZE", "--vram SIZE"):
            assert option in told
        assert "--io-threads N" in told and "--block-rows N" in told


def test_auto_leaves_the_choice_to_the_engine(millstream: Program) -> None:
    named = ("ram", "vram", "io-threads", "block-rows", "threads", "context", "chunk", "max-patches")
    for auto in ("auto", "AUTO", " Auto"):
        chosen = [word for option in named for word in (f"--{option}", auto)]
        assert output(millstream("info", "tiny", "--json", *chosen)) == output(millstream("info", "tiny", "--json"))


def test_what_was_mistyped_at_length_is_told_by_its_ends(millstream: Program) -> None:
    endless = "a" + "x" * 5000 + "z"
    for arguments in (
        ("info", endless),
        ("info", "tiny", "--kv", endless),
        ("info", "tiny", "--threads", endless),
        ("info", "tiny", f"--{endless}"),
        ("run", "tiny", "-p", "a", "--image", endless),
        ("run", "tiny", "-p", "a", "--tools", endless),
        ("run", "tiny", "-p", "a", "--reasoning", endless),
        ("info", "tiny", "--mmproj", endless),
        (endless,),
    ):
        said = refusal(millstream(*arguments))
        assert len(said) < 600 and "xxx…xxx" in said and "xxxz" in said


def test_an_option_that_is_empty_is_told_as_that(millstream: Program) -> None:
    assert "not “”" in refusal(millstream("info", "tiny", "--kv", ""))


def test_the_help_says_how_far_the_context_may_shrink(millstream: Program) -> None:
    told = " ".join(output(millstream("run", "--help")).split())
    assert f"up to {DEFAULT_CONTEXT}, and where memory is short fewer, down to {SHORTEST})" in told


def test_commands_import_no_qt_and_no_torch(library: Path) -> None:
    code = (
        "import sys; from app.cli import main\n"
        "main(['run', 'tiny', '-p', 'a', '--max-tokens', '1', '--json'])\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('PySide6', 'torch')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"MILLSTREAM_HOME": str(library)},
        timeout=WAIT,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_arguments_it_opens_the_window(millstream: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str | None] = []
    window = ModuleType("app.window")
    window.open_window = lambda model: opened.append(model) or 7
    monkeypatch.setitem(sys.modules, "app.window", window)
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert millstream().returncode == 7
    assert opened == [None]


def test_where_the_window_cannot_open_it_names_the_terminal_chat(
    millstream: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    monkeypatch.setitem(sys.modules, "app.window", None)
    assert "millstream chat" in refusal(millstream())
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        assert "no display" in refusal(millstream())


@pytest.mark.skipif(sys.platform != "linux", reason="limits and files of Linux")
def test_memory_that_the_system_refuses_gets_one_sentence(library: Path) -> None:
    code = (
        "import resource; from app.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "raise SystemExit(main())"
    )
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            [sys.executable, "-c", code, "run", "tiny", "-p", "-"],
            stdin=endless,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library)},
            timeout=WAIT,
        )
    assert "refused the memory" in refusal(done)
