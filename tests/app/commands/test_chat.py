"""`millstream chat`, through a pipe and at a terminal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from engine import Engine, Message, Settings, Text
from tests.app.running import POSIX, STORY, WAIT, Program, Terminal, begin, output
from tests.tiny_chat import write_tiny_chat


def test_chat_answers_each_line_until_it_is_told_to_quit(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0", "--threads", "1")
    reply = output(millstream(*command, stdin="Hello\n"))
    assert reply.strip()
    assert output(millstream(*command, stdin="Hello\n\n/new\nHello\n/quit\nHello\n")) == reply * 2
    assert output(millstream(*command, stdin="")) == ""


def test_chat_tells_its_commands_instead_of_sending_an_unknown_one(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0")
    done = millstream(*command, stdin="/exit now\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no command /exit:" in done.stderr and "/new" in done.stderr and "/quit" in done.stderr
    sent = output(millstream(*command, stdin="//exit now\n"))
    assert sent.strip()
    messages = [Message("user", "/exit now")]
    with Engine.load(Path(os.environ["MILLSTREAM_HOME"]) / "models" / "tiny.gguf") as engine:
        events = engine.chat(messages, Settings(max_tokens=3, temperature=0))
        assert sent == "".join(event.text for event in events if isinstance(event, Text)) + "\n"


def test_chat_says_how_a_full_conversation_goes_on(millstream: Program) -> None:
    done = millstream("chat", "tiny", "--context", "40", stdin=f"{'x' * 50}\n")
    assert done.returncode == 2
    assert done.stderr.endswith("(Tiny Chat allows 256). `/new` begins again.\n")
    assert "larger" not in millstream("chat", "tiny", stdin=f"{'x' * 300}\n").stderr


def test_chat_goes_on_after_a_message_that_does_not_fit_and_its_code_tells_in_the_end(millstream: Program) -> None:
    command = ("chat", "tiny", "--max-tokens", "3", "--temperature", "0")
    done = millstream(*command, stdin=f"{'x' * 300}\nHello\n")
    assert done.returncode == 2
    assert done.stderr.startswith("millstream: The prompt has ") and done.stderr.count("\n") == 1
    assert done.stdout.lstrip() == output(millstream(*command, stdin="Hello\n")).lstrip()


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


@POSIX
def test_at_a_terminal_a_refusal_is_told_and_the_prompt_comes_back(library: Path) -> None:
    with Terminal(library, "chat", "tiny", "--max-tokens", "2") as terminal:
        for typed, told in (("/exit", "no command /exit"), ("x" * 300, "`/new` begins again."), ("/image", "Name the")):
            terminal.until("> ")
            terminal.type(f"{typed}\r")
            terminal.until(told)
        terminal.until("> ")
        terminal.type("Hello\r")
        terminal.until("[stopped at 2 tokens]")
        terminal.until("> ")
        terminal.type("/quit\r")
        assert terminal.process.wait(WAIT) == 0


@POSIX
def test_the_model_can_be_opened_again_in_the_middle_of_a_conversation(folder: Path, library: Path) -> None:
    path = write_tiny_chat(folder / "mill.gguf")
    whole = path.read_bytes()
    with Terminal(library, "chat", str(path), "--max-tokens", "5", "--temperature", "0", "--threads", "1") as terminal:

        def enter(line: str, until: str) -> str:
            """→ what is shown after the line, up to there."""
            terminal.until("> ")
            terminal.type(f"{line}\r")
            terminal.until(f"{line}\r\n")
            return terminal.until(until)

        first = enter("Hello", "[stopped at 5 tokens]").split("\x1b[K")[-1]
        path.write_bytes(whole[:-3000])
        assert "mill.gguf" in enter("/open", "`/open` opens the model again.")
        enter("Hello", "No model is open: `/open` opens it.")
        path.write_bytes(whole)
        enter("/open", "Tiny Chat is open again.")
        enter("/new", "A new conversation.")
        assert enter("Hello", "[stopped at 5 tokens]").split("\x1b[K")[-1] == first


@pytest.mark.parametrize("command", ["/new", "/open", "/quit"])
def test_a_command_with_something_after_it_is_refused(millstream: Program, command: str) -> None:
    done = millstream("chat", "tiny", stdin=f"{command} other.gguf\n")
    assert done.returncode == 2
    said = f"millstream: {command} stands alone: write nothing after it."
    leads_on = " To open another model, leave and begin with `millstream chat MODEL`." if command == "/open" else ""
    assert done.stderr == f"{said}{leads_on}\n"
