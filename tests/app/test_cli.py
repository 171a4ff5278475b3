from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest

import app
from app.cli import main
from engine import Engine, Message, Settings, Text
from tests.tiny_chat import write_tiny_chat

ROOT = Path(app.__file__).parent.parent
WAIT = 120
COMMANDS = ("chat", "run", "info", "bench", "fingerprint", "models")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose library holds one tiny model, "tiny"."""
    home = tmp_path_factory.mktemp("山 é home")
    (home / "models").mkdir()
    write_tiny_chat(home / "models" / "tiny.gguf")
    return home


Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program(library: Path) -> Program:
    """Runs the program to its end in a process of its own. No stream is a terminal."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "app", *arguments],
            input="",
            capture_output=True,
            encoding="utf-8",
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library)},
            timeout=WAIT,
        )

    return run


@pytest.fixture
def millstream(library: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The same in this process, which spares the start of an interpreter."""

    def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setenv("MILLSTREAM_HOME", str(library))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


def output(done: subprocess.CompletedProcess[str]) -> str:
    """Standard output of a run that went well and said nothing else."""
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line with which a run was refused."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("millstream: ")
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    return done.stderr


RUN = ("run", "tiny", "-p", "Hello", "--max-tokens", "6", "--seed", "4", "--temperature", "1.5")


def test_run_gives_one_json_object_or_the_same_text_as_it_comes(program: Program) -> None:
    result = json.loads(output(program(*RUN, "--json")))
    before = ["text", "reasoning", "tool_calls", "finish_reason", "in_reasoning"]
    assert list(result) == [*before, "seed", "usage", "timings"]
    assert result["finish_reason"] == "length"
    assert result["usage"]["completion_tokens"] == 6
    assert result["timings"]["decode_s"] > 0
    assert output(program(*RUN)) == result["text"].removesuffix("\n") + "\n"


def test_run_takes_its_prompt_from_standard_input(millstream: Program) -> None:
    from_stdin = output(millstream(*RUN[:3], "-", *RUN[4:], stdin="Hello"))
    assert from_stdin == output(millstream(*RUN))
    assert "not UTF-8" in refusal(millstream("run", "tiny", "-p", "-", stdin=b"\xff\xfe"))


def test_raw_text_has_no_template(millstream: Program) -> None:
    usage = [json.loads(output(millstream(*RUN, "--json", *more)))["usage"] for more in ((), ("--raw",))]
    assert usage[1]["prompt_tokens"] == 5 < usage[0]["prompt_tokens"]
    assert "--system" in refusal(millstream(*RUN, "--raw", "--system", "Be brief"))


def test_a_system_message_stands_before_the_prompt(millstream: Program) -> None:
    usage = [json.loads(output(millstream(*RUN, "--json", *more)))["usage"] for more in ((), ("--system", "ab"))]
    assert usage[1]["prompt_tokens"] == usage[0]["prompt_tokens"] + len("|system\nab|\n")


def test_a_stop_string_ends_the_text(millstream: Program) -> None:
    text = json.loads(output(millstream(*RUN, "--json")))["text"]
    stopped = json.loads(output(millstream(*RUN, "--json", "--stop", text[2:4])))
    assert (stopped["text"], stopped["finish_reason"]) == (text[: text.index(text[2:4])], "stop")


def test_info_tells_what_the_file_holds(millstream: Program, library: Path) -> None:
    told = json.loads(output(millstream("info", "tiny", "--json")))
    assert told["path"] == str(library / "models" / "tiny.gguf")
    assert (told["name"], told["architecture"], told["context_length"]) == ("Tiny Chat", "llama", 256)
    assert "Tiny Chat" in output(millstream("info", str(library / "models" / "tiny.gguf")))


def test_fingerprint_is_the_same_whatever_the_threads_the_chunk_and_the_instruction_set(
    millstream: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("fingerprint", "tiny", "-p", "A mill by the river", "-n", "4")
    one = json.loads(output(millstream(*command, "--json", "--threads", "1")))
    assert list(one) == ["tokens", "sha256"] and len(one["tokens"]) == 4 and len(one["sha256"]) == 64
    assert json.loads(output(millstream(*command, "--json", "--threads", "2", "--chunk", "7"))) == one
    assert one["sha256"] in output(millstream(*command, "--chunk", "1"))
    assert json.loads(output(millstream(*command, "--json", "--kv", "f32")))["sha256"] != one["sha256"]
    monkeypatch.setenv("MILLSTREAM_ISA", "portable")
    assert json.loads(output(millstream(*command, "--json"))) == one


def test_bench_tells_its_fields(millstream: Program) -> None:
    command = ("bench", "tiny", "--prompt-tokens", "20", "--tokens", "3", "--threads", "1")
    told = json.loads(output(millstream(*command, "--json")))
    rates = {"prefill_tok_s", "decode_short_tok_s", "decode_long_tok_s"}
    shares = {"prefill_multiply_add_share", "decode_short_bandwidth_share", "decode_long_bandwidth_share"}
    floors = {"read_bandwidth", "multiply_add_rate"}
    counts = {
        *("threads", "peak_memory_bytes", "bytes_read", "multiply_adds_per_token", "bytes_per_token"),
        *("decode_short_bytes_per_token", "decode_long_bytes_per_token"),
    }
    assert {"model"} | rates | shares | floors | counts == set(told)
    assert told["threads"] == 1
    assert all(told[number] > 0 for number in rates | floors | counts)
    shown = output(millstream(*command))
    assert shown.count("tokens/s") == 3
    assert shown.count("% of the memory's bandwidth") == 2 and shown.count("% of the cores' multiply-adds") == 1


def test_bench_beside_a_peer_tells_ratios(millstream: Program, tmp_path: Path) -> None:
    peer = tmp_path / "peer.py"
    told = {"prefill_tok_s": 0.001, "decode_short_tok_s": 1e9, "decode_long_tok_s": 5}
    peer.write_text(f"print({json.dumps(told)!r})")
    command = ("bench", "tiny", "--prompt-tokens", "20", "--tokens", "3", "--rounds", "1", "--threads", "1")
    shown = output(millstream(*command, "--vs", f'"{sys.executable}" "{peer}"')).splitlines()
    assert [line.split("  ")[0] for line in shown] == ["model", "peer", "prefill", "decode", "decode, long", "machine"]
    assert "against 5.0 tokens/s" in shown[4]
    assert float(shown[2].split()[1]) > 1 > float(shown[3].split()[1])


def test_models_lists_the_library(millstream: Program) -> None:
    assert output(millstream("models")).split() == ["tiny", "107.7", "kB"]


def test_models_gives_one_json_object(millstream: Program, library: Path) -> None:
    path = library / "models" / "tiny.gguf"
    listed = [{"name": "tiny", "path": str(path), "bytes": path.stat().st_size}]
    assert json.loads(output(millstream("models", "--json"))) == {"folder": str(path.parent), "models": listed}


def test_an_empty_library_says_how_the_first_model_comes(tmp_path: Path) -> None:
    done = shell("M models", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "models") in done.stderr and "millstream run starter" in done.stderr
    assert json.loads(output(shell("M models --json", home=tmp_path)))["models"] == []


def test_the_version_is_that_of_the_installation_and_0_outside_one(
    millstream: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.metadata.version", lambda name: f"1.2 of {name}")
    assert output(millstream("--version")) == "millstream 1.2 of millstream\n"

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("app.cli.metadata.version", missing)
    assert output(millstream("--version")) == "millstream 0\n"


def test_the_seed_that_was_drawn_gives_the_same_reply_again(millstream: Program) -> None:
    command = ("run", "tiny", "-p", "Hello", "--max-tokens", "12", "--temperature", "1.5", "--json")
    first = json.loads(output(millstream(*command)))
    assert json.loads(output(millstream(*command, "--seed", str(first["seed"]))))["text"] == first["text"]
    assert json.loads(output(millstream(*command)))["seed"] != first["seed"]


def test_chat_tells_its_commands_instead_of_sending_an_unknown_one(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0")
    done = millstream(*command, stdin="/exit now\n")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no command /exit:" in done.stderr and "/new" in done.stderr and "/quit" in done.stderr
    sent = output(millstream(*command, stdin="//exit now\n"))
    assert sent.strip()
    messages = [Message("user", "/exit now")]
    with Engine.load(Path(os.environ["MILLSTREAM_HOME"]) / "models" / "tiny.gguf") as engine:
        events = engine.chat(messages, Settings(max_tokens=3, temperature=0))
        assert sent == "".join(event.text for event in events if isinstance(event, Text)) + "\n"


def test_chat_says_how_a_full_conversation_goes_on(millstream: Program) -> None:
    done = millstream("chat", "tiny", "--context", "40", stdin=f"{'x' * 50}\n")
    assert done.returncode == 0
    assert done.stderr.endswith("(Tiny Chat allows 256). `/new` begins again.\n")
    assert "larger" not in millstream("chat", "tiny", stdin=f"{'x' * 300}\n").stderr


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


def shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A line of `sh`, in which M is the program."""
    program = f'M() {{ "{sys.executable}" -m app "$@"; }}; {command}'
    return subprocess.run(
        ["sh", "-c", program],
        input="",
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env=os.environ | {"MILLSTREAM_HOME": str(home)},
        timeout=WAIT,
    )


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="no sh, no pseudo-terminals")


@POSIX
@pytest.mark.parametrize(
    "command",
    [
        "M run tiny -p hi --max-tokens 2 >&-",
        "M run tiny -p hi --max-tokens 2 --json >&-",
        "M info tiny >&-",
        "M --help >&-",
        "M chat tiny <&-",
        "M run tiny -p - <&-",
    ],
)
def test_a_closed_stream_that_is_needed_gets_one_sentence(library: Path, command: str) -> None:
    assert " cannot be " in refusal(shell(command, library))


@POSIX
def test_a_closed_stream_that_is_not_needed_changes_nothing(library: Path) -> None:
    command = "M run tiny -p hi --max-tokens 4 --temperature 0"
    assert output(shell(f"{command} 2>&-", library)) == output(shell(f"{command} <&-", library)) != ""


@POSIX
@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_an_error_that_cannot_be_told_still_gives_its_code(library: Path, closed: str) -> None:
    done = shell(f"M run nosuch -p hi {closed}", library)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
@pytest.mark.parametrize(
    "command",
    [
        "M run nosuch -p hi 2>/dev/full",
        "M frobnicate 2>/dev/full",
        "M --help >/dev/full",
        "echo hi | M chat tiny --max-tokens 2 >/dev/full",
    ],
)
def test_a_full_disk_under_either_stream_gives_code_2(library: Path, command: str) -> None:
    assert shell(command, library).returncode == 2


class Terminal:
    """The program with a pseudo-terminal for all its streams."""

    def __init__(self, library: Path, *arguments: str) -> None:
        import pty

        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library), "TERM": "dumb"},
        )
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def until(self, text: str) -> None:
        """Read on to the next place where this is shown."""
        while (at := self.shown.find(text, self._seen)) < 0:
            assert select.select([self._ours], [], [], WAIT)[0], self.shown
            self.shown += os.read(self._ours, 4096).decode(errors="replace")
        self._seen = at + len(text)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl+C. The terminal is not the controlling one of the process, so that the signal comes from here."""
        # Python misses a signal between the prompt's last character and the wait for a key.
        time.sleep(0.3)
        self.process.send_signal(signal.SIGINT)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@POSIX
def test_ctrl_c_at_the_prompt_leaves_only_the_second_time(library: Path) -> None:
    with Terminal(library, "chat", "tiny", "--max-tokens", "2") as terminal:
        terminal.until("/quit leaves.")
        terminal.until("> ")
        assert "/new" in terminal.shown
        for _ in range(2):
            terminal.interrupt()
            terminal.until("Press Ctrl+C again or Ctrl+D to leave.")
            terminal.until("> ")
            terminal.type("Hello\r")
            terminal.until("[stopped at 2 tokens]")
            terminal.until("> ")
        terminal.interrupt()
        terminal.until("Press Ctrl+C again")
        terminal.until("> ")
        terminal.interrupt()
        assert terminal.process.wait(WAIT) == 0


@POSIX
def test_a_reply_that_was_cut_off_is_marked_for_a_person(library: Path) -> None:
    with Terminal(library, "run", "tiny", "-p", "Hello", "--max-tokens", "1") as terminal:
        terminal.until("[stopped at 1 token]")
    with Terminal(library, "run", "tiny", "-p", "Hello", "--context", "40", "--temperature", "0") as terminal:
        terminal.until("[the context is full]")
    with Terminal(library, "chat", "tiny", "--context", "40", "--temperature", "0") as terminal:
        terminal.until("> ")
        terminal.type("Hello\r")
        terminal.until("[the context is full: /new begins again]")


def test_chat_answers_each_line_until_it_is_told_to_quit(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0", "--threads", "1")
    reply = output(millstream(*command, stdin="Hello\n"))
    assert reply.strip()
    assert output(millstream(*command, stdin="Hello\n\n/new\nHello\n/quit\nHello\n")) == reply * 2
    assert output(millstream(*command, stdin="")) == ""


def test_chat_goes_on_after_a_message_that_does_not_fit(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0")
    done = millstream(*command, stdin=f"{'x' * 300}\nHello\n")
    assert done.returncode == 0
    assert done.stderr.startswith("millstream: The prompt has ") and done.stderr.count("\n") == 1
    assert done.stdout.lstrip() == output(millstream(*command, stdin="Hello\n")).lstrip()


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
}


@pytest.mark.parametrize("arguments", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_gets_one_sentence(millstream: Program, arguments: tuple[str, ...]) -> None:
    refusal(millstream(*arguments))


def test_a_mistake_leaves_the_program_with_code_2_and_no_traceback(program: Program, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    for arguments in (("frobnicate",), ("info", str(tmp_path / "bad.gguf")), ("run", "tiny", "-p", "x" * 300)):
        refusal(program(*arguments))


@pytest.mark.parametrize("command", ["info", "run"])
@pytest.mark.parametrize("content", [None, b"", b"GGUF", b"Once upon a time", "truncated", "unsupported"])
def test_a_bad_file_gets_one_sentence_that_names_it(
    millstream: Program, library: Path, tmp_path: Path, command: str, content: bytes | str | None
) -> None:
    path = tmp_path / "bad.gguf"
    whole = (library / "models" / "tiny.gguf").read_bytes()
    if content == "truncated":
        path.write_bytes(whole[:-3000])
    elif content == "unsupported":
        path.write_bytes(whole.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0alien"))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    sentence = refusal(millstream(command, str(path), *(("-p", "a") if command == "run" else ())))
    assert "alien" in sentence if content == "unsupported" else "bad.gguf" in sentence


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(millstream: Program, command: str) -> None:
    assert output(millstream(command, "--help")).startswith(f"usage: millstream {command}")
    assert command in output(millstream("--help"))


def test_every_command_that_takes_a_model_takes_the_same_options(millstream: Program) -> None:
    for command in set(COMMANDS) - {"models"}:
        told = output(millstream(command, "--help"))
        assert all(option in told for option in ("--threads N", "--context N", "--kv FORM", "--chunk N"))


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
def test_a_full_disk_under_the_output_gets_one_sentence(library: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "app", *RUN],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"MILLSTREAM_HOME": str(library)},
            timeout=WAIT,
        )
    assert done.returncode == 2
    assert done.stderr.decode() == "millstream: The output cannot be written: No space left on device.\n"


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


STORY = ("--temperature", "0", "--max-tokens", "4000")


def begin(*arguments: str) -> subprocess.Popen[bytes]:
    """The program on the real starter, with all its streams in our hands."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", "app", *arguments], stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
def test_ctrl_c_ends_a_run(starter: Path) -> None:
    with begin("run", str(starter), "-p", "Tell me a long story.", *STORY) as process:
        assert process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
def test_ctrl_c_stops_a_reply_and_the_chat_goes_on(starter: Path) -> None:
    with begin("chat", str(starter), *STORY) as process:
        process.stdin.write(b"Tell me a long story.\n")
        process.stdin.flush()
        assert process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(b"/new\nSay the word yes.\n", timeout=WAIT)
    assert (process.returncode, errors) == (0, b"")
    assert len(rest.decode().split("\n")) > 2


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGPIPE")
def test_a_reader_that_goes_away_ends_a_run_quietly(starter: Path) -> None:
    with begin("run", str(starter), "-p", "Tell me a long story.", *STORY) as process:
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.wait(WAIT) == 141
        assert process.stderr.read() == b""


def test_bench_looks_at_the_file_before_it_runs_the_peer(millstream: Program, tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    told = refusal(millstream("bench", str(tmp_path / "empty.gguf"), "--vs", f"touch {tmp_path / 'ran'}"))
    assert "empty.gguf is empty" in told
    assert not (tmp_path / "ran").exists()
