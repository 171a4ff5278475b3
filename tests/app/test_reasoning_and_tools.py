"""`run` and `chat` with a model that reasons and calls a tool."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from app.cli import main
from app.tools_file import MAX_BYTES, read_tools
from engine import SettingsError, Tool
from tests.scripted_chat import write_scripted_chat
from tests.tiny_chat import TEMPLATE

CALL = '{"name": "mill", "arguments": {"sacks": "drei ä"}}'
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
SWITCHES = "{{ tools | tojson if tools }}{{ enable_thinking }}{{ reasoning_effort }}" + TEMPLATE
SCHEMA = {"type": "object", "properties": {"sacks": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "mill", "description": "Grinds", "parameters": SCHEMA}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models, and a file of tools."""
    made = tmp_path_factory.mktemp("山 é")
    reply = ["<think>", "Why?", "</think>", "\n\nLet me see.", "<tool_call>", CALL, "</tool_call>"]
    write_scripted_chat(made / "calls.gguf", reply, template=SWITCHES, special=MARKERS)
    reply = ["<think>", "Why?", "</think>", "\n\nSo."]
    write_scripted_chat(made / "thinks.gguf", reply, template=TEMPLATE, special=MARKERS)
    reply = ["<|channel|>", "commentary to=functions.mill ", "<|message|>", '{"sacks": 3}', "<|call|>"]
    marks = [piece for piece in reply if piece.startswith("<|")]
    harmony = TEMPLATE + "{{ '<|start|><|channel|><|message|>' if false }}"
    write_scripted_chat(made / "harmony.gguf", reply, template=harmony, special=marks)
    (made / "tools.json").write_text(json.dumps(TOOLS))
    return made


def run(
    capfd: pytest.CaptureFixture[str], folder: Path, model: str, *more: str, command: str = "run"
) -> tuple[int, str, str]:
    prompt = ("-p", "Hi") if command == "run" else ()
    code = main([command, str(folder / f"{model}.gguf"), *prompt, "--temperature", "0", *more])
    return code, *capfd.readouterr()


def test_a_call_is_printed_as_a_line_of_json(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    tools = ("--tools", str(folder / "tools.json"))
    assert run(capfd, folder, "calls", *tools) == (0, f"Let me see.\n{CALL}\n", "")
    code, out, err = run(capfd, folder, "calls", *tools, "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert (result["text"], result["reasoning"]) == ("Let me see.", "Why?")
    assert result["tool_calls"] == [json.loads(CALL)]
    assert result["finish_reason"] == "stop" and result["in_reasoning"] is False


def test_without_tools_there_are_no_calls(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(capfd, folder, "calls") == (0, f"Let me see.{CALL}\n", "")
    assert json.loads(run(capfd, folder, "calls", "--json")[1])["tool_calls"] == []


def test_a_model_that_calls_what_it_was_not_told_of_is_no_silence(
    capfd: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capfd, folder, "harmony") == (0, '{"name": "mill", "arguments": {"sacks": 3}}\n', "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hi\n"), "utf-8"))
    code, out, err = run(capfd, folder, "harmony", command="chat")
    assert (code, out) == (0, "\n")
    assert err == "millstream: The model asks for the tool mill, and here it has none.\n"


def test_the_switches_reach_the_template(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    def told(*more: str) -> int:
        return int(json.loads(run(capfd, folder, "calls", "--json", *more)[1])["usage"]["prompt_tokens"])

    assert told("--thinking") == told() + len("True")
    assert told("--no-thinking", "--reasoning", "medium") == told() + len("Falsemedium")


def test_final_only_leaves_the_reasoning_out(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    assert run(capfd, folder, "thinks", "--final-only") == (0, "So.\n", "")
    result = json.loads(run(capfd, folder, "thinks", "--final-only", "--json")[1])
    assert result["text"] == "So." and "reasoning" not in result


@pytest.mark.parametrize("more", [(), ("--final-only",)])
def test_a_reply_that_ends_inside_its_reasoning_says_so(
    capfd: pytest.CaptureFixture[str], folder: Path, more: tuple[str, ...]
) -> None:
    code, out, err = run(capfd, folder, "thinks", "--max-tokens", "2", *more)
    assert (code, out) == (0, "\n")
    assert err == "[stopped inside its reasoning at 2 tokens]\n"
    assert json.loads(run(capfd, folder, "thinks", "--max-tokens", "2", "--json", *more)[1])["in_reasoning"] is True


def test_a_model_that_reasons_all_the_same_is_told_of(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = run(capfd, folder, "thinks", "--no-thinking")
    assert (code, out) == (0, "So.\n")
    assert err.startswith("millstream: The model reasoned although") and err.count("\n") == 1


def test_chat_takes_the_same_switches(
    capfd: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chat(model: str, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hi\n"), "utf-8"))
        return run(capfd, folder, model, *more, command="chat")

    assert chat("thinks", "--final-only") == (0, "So.\n", "")
    assert chat("calls", "--thinking", "--reasoning", "low") == (0, f"Let me see.{CALL}\n", "")
    assert "inside its reasoning" in chat("thinks", "--max-tokens", "2")[2]
    assert "cannot tell it how much to reason" in chat("thinks", "--reasoning", "low")[2]


def test_tools_are_read_with_and_without_their_wrapping(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*TOOLS, {"name": "clock"}, {"name": "bell", "parameters": None}]), "utf-8-sig")
    assert read_tools(str(path)) == (Tool("mill", "Grinds", json.dumps(SCHEMA)), Tool("clock"), Tool("bell"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"cannot be read: No such file"),
        (b"", r"is not JSON \(line 1, column 1\)"),
        (b"[\n{]", r"is not JSON \(line 2, column 2\)"),
        (b'"\xff"', "is not UTF-8 text"),
        (b"{}", "must hold a list of tools"),
        (b"[]", "must hold a list of tools"),
        (b"[3]", "Tool 1 in .* is not a JSON object"),
        (b'[{"name": "a"}, {}]', "Tool 2 in .* has no name"),
        (b'[{"name": " "}]', "Tool 1 in .* has no name"),
        (b'[{"name": "a", "description": 3}]', "Tool 1 in .* description that is no text"),
        (b'[{"function": "a"}]', "Tool 1 in .* is not a JSON object"),
        (b'[{"name": "a"}, {"name": "a"}]', "Two tools have the name 'a'"),
        (b'[{"name": "a", "parameters": [1]}]', "The parameters of 'a' must be a JSON object"),
        (b'[{"name": "a", "parameters": {"a": NaN}}]', "The parameters of 'a' must be a JSON object"),
        (b"[" * 100_000, "is not JSON that can be read"),
        (b"[" + b" " * MAX_BYTES, "has more than 1048576 bytes"),
    ],
)
def test_a_bad_file_of_tools_gets_one_sentence_that_names_it(
    capfd: pytest.CaptureFixture[str], folder: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=words):
        read_tools(str(path))
    code, out, err = run(capfd, folder, "calls", "--tools", str(path))
    assert (code, out) == (2, "") and "bad.json" in err and err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no fifos")
def test_tools_come_out_of_a_pipe_and_one_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "tools"
    os.mkfifo(pipe)
    with pytest.raises(SettingsError, match="is not JSON"):
        read_tools(str(pipe))
    writer = os.open(pipe, os.O_RDWR)
    threading.Timer(0.1, lambda: (os.write(writer, b'[{"name": "mill"}]'), os.close(writer))).start()
    assert read_tools(str(pipe)) == (Tool("mill"),)
