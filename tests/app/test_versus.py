"""Two commands measured in turn. The commands are small programs of the tests, run by this interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import app
from app import child, versus
from app.child import our_command
from app.versus import Round, compare, peer_command, summary
from engine.errors import MillstreamError, SettingsError
from tests.tiny_chat import write_tiny_chat

ROOT = Path(app.__file__).parent.parent
WAIT = 120
TOLD = {"prefill_tok_s": 100.0, "decode_short_tok_s": 20, "decode_long_tok_s": 10.5}
SLEEPS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open({path!r} + ".part", "w") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}")
os.rename({path!r} + ".part", {path!r})
time.sleep(600)
"""
"""A program that starts another, tells both numbers in a file, and goes on for ten minutes."""


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def tells(figures: object) -> list[str]:
    return program(f"print('Loading …'); print({json.dumps(figures)!r})")


def gone(path: Path) -> bool:
    """Whether both processes that are named in the file have ended."""
    deadline = time.monotonic() + 10
    numbers = [int(number) for number in path.read_text().split()]
    while any(psutil.pid_exists(number) and psutil.Process(number).status() != "zombie" for number in numbers):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return len(numbers) == 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("山 é") / "tiny model.gguf")


def test_each_side_begins_every_other_round(folder: Path) -> None:
    log, seen = folder / "log", []

    def side(name: str) -> list[str]:
        return program(f"open({str(log)!r}, 'a').write({name!r}); print({json.dumps(TOLD)!r})")

    made = compare(side("o"), side("p"), rounds=3, limit=WAIT, progress=lambda who, done: seen.append((who, done)))
    assert log.read_text() == "pooppo"
    assert seen == [(versus.PEER if who == "p" else versus.OURS, at) for at, who in enumerate("pooppo")]
    assert len(made) == 3
    assert all(dict(each.ours) == dict(each.peer) == TOLD for each in made)


def figures(short: float, long: float, prefill: float, **more: float) -> dict[str, float]:
    return {"decode_short_tok_s": short, "decode_long_tok_s": long, "prefill_tok_s": prefill, **more}


def test_the_median_is_taken_of_the_ratios_and_not_the_ratio_of_medians() -> None:
    rounds = [
        Round(figures(10, 3, 8, decode_short_bandwidth_share=0.5, read_bandwidth=4e9), figures(5, 3, 4)),
        Round(figures(30, 3, 8, decode_short_bandwidth_share=0.7, read_bandwidth=5e9), figures(30, 2, 4)),
        Round(figures(20, 3, 8, decode_short_bandwidth_share=0.9, read_bandwidth=9e9), figures(5, 1, 4)),
    ]
    told = summary(rounds)
    short = told.decode_short_tok_s
    assert (short.ratios, short.ratio) == ((2.0, 1.0, 4.0), 2.0)
    assert (short.ours, short.peer, short.share) == (20, 5, 0.7)
    assert (told.decode_long_tok_s.ratios, told.decode_long_tok_s.ratio) == ((1.0, 1.5, 3.0), 1.5)
    assert (told.prefill_tok_s.ratio, told.prefill_tok_s.share) == (2.0, None)
    assert (told.rounds, told.read_bandwidth, told.multiply_add_rate) == (3, 5e9, None)


def test_the_path_stands_where_the_command_names_it() -> None:
    path = Path("/some where/it's.gguf")
    if sys.platform == "win32":
        assert peer_command("peer.exe -m {model}", path) == f'peer.exe -m "{path}"'
    else:
        assert peer_command("peer 'a b' {model} --file={model}", path) == ["peer", "a b", str(path), f"--file={path}"]


@pytest.mark.parametrize("text", ["", "  "])
def test_no_command_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is empty"):
        peer_command(text, Path("m.gguf"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows takes quotations apart itself")
def test_a_quotation_without_an_end_is_refused() -> None:
    with pytest.raises(SettingsError, match="quotation that does not end"):
        peer_command("peer 'a b", Path("m.gguf"))


BAD: dict[str, tuple[list[str], str]] = {
    "fails": (program("import sys; sys.exit('No such\\nmodel: x')"), "failed with exit status 1: model: x$"),
    "fails and says nothing": (program("raise SystemExit(3)"), "failed with exit status 3: it gave no reason"),
    "does not exist": (["no-such-program-at-all"], "does not start: no-such-program-at-all: "),
    "prints nothing": (program(""), "did not print a JSON object"),
    "prints text": (program("print('100 tok/s')"), "did not print a JSON object"),
    "prints text after it": (program(f"print({json.dumps(TOLD)!r}); print('Done.')"), "did not print a JSON object"),
    "prints a list": (tells([1, 2, 3]), "did not print a JSON object"),
    "prints bytes": (program("import os; os.write(1, bytes(range(128, 256)))"), "did not print a JSON object"),
    "prints endless brackets": (program("print('[' * 60000)"), "did not print a JSON object"),
    "tells nothing": (tells(TOLD | {"prefill_tok_s": None}), "null as prefill_tok_s"),
    "leaves a field out": (tells({"prefill_tok_s": 1, "decode_long_tok_s": 2}), "without decode_short_tok_s"),
    "is not a number": (tells(TOLD | {"decode_long_tok_s": float("nan")}), "NaN as decode_long_tok_s"),
    "is without end": (tells(TOLD | {"decode_long_tok_s": float("inf")}), "Infinity as decode_long_tok_s"),
    "stands still": (tells(TOLD | {"prefill_tok_s": 0}), "0 as prefill_tok_s, which has to be a number above zero"),
    "runs backwards": (tells(TOLD | {"prefill_tok_s": -1.5}), "-1.5 as prefill_tok_s"),
    "tells text": (tells(TOLD | {"prefill_tok_s": "100"}), '"100" as prefill_tok_s'),
    "tells a truth": (tells(TOLD | {"prefill_tok_s": True}), "true as prefill_tok_s"),
    "tells more than a float": (
        program(f"print({json.dumps(TOLD).replace('20', '2' + '0' * 400)!r})"),
        "as decode_short_tok_s, which has to be a number above zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_peer_that_cannot_be_used_gets_one_sentence(case: str) -> None:
    command, sentence = BAD[case]
    with pytest.raises(MillstreamError, match=sentence) as refusal:
        compare(program("raise SystemExit(9)"), command, rounds=2, limit=WAIT)
    assert str(refusal.value).startswith(versus.PEER) and "\n" not in str(refusal.value)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_a_peer_that_crashes_is_told_by_its_signal() -> None:
    command = program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(MillstreamError, match="was ended by signal 9"):
        compare(tells(TOLD), command, rounds=1, limit=WAIT)


def test_a_peer_that_hangs_is_stopped_with_what_it_started(folder: Path) -> None:
    pids = folder / "pids"
    with pytest.raises(MillstreamError, match=r"stopped after 2 seconds .* --limit"):
        compare(tells(TOLD), program(SLEEPS.format(path=str(pids))), rounds=1, limit=2)
    assert gone(pids)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM that could be ignored")
def test_a_peer_that_does_not_listen_is_stopped_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "GRACE", 0.1)
    pids = folder / "pids"
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPS.format(path=str(pids))}"
    with pytest.raises(MillstreamError, match="stopped after"):
        compare(tells(TOLD), program(deaf), rounds=1, limit=2)
    assert gone(pids)


def bench(model: Path, *arguments: str, cwd: Path = ROOT) -> subprocess.Popen[str]:
    """The program itself, in a process of its own."""
    return subprocess.Popen(
        our_command(model, ["--prompt-tokens", "20", "--tokens", "3", "--threads", "1", *arguments]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the shell's quotation marks")
def test_our_side_runs_from_wherever_a_person_stands(model: Path, folder: Path) -> None:
    (folder / "app.py").write_text("raise SystemExit('the wrong one')")
    peer = folder / "peer.py"
    peer.write_text(f"import sys; assert sys.argv[1] == {str(model)!r}; print({json.dumps(TOLD)!r})")
    with bench(model, "--rounds", "2", "--vs", f'"{sys.executable}" peer.py {{model}}', cwd=folder) as process:
        out, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, errors) == (0, "")
    told = json.loads(out)
    assert (told["model"], told["rounds"]) == (str(model), 2)
    for field, value in TOLD.items():
        assert told[field]["peer"] == value
        assert len(told[field]["ratios"]) == 2
        assert told[field]["ours"] > 0 and told[field]["share"] is not None
    assert told["read_bandwidth"] > 0 and told["multiply_add_rate"] > 0


def test_what_our_side_refuses_is_told_in_its_own_words(model: Path) -> None:
    ours = our_command(model, ["--context", "40"])
    with pytest.raises(MillstreamError, match=r"^Our own measurement .*status 2: The prompt has 512 tokens") as refusal:
        compare(ours, tells(TOLD), rounds=1, limit=WAIT)
    assert "millstream:" not in str(refusal.value)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a single process")
def test_ctrl_c_stops_the_peer_with_what_it_started(model: Path, folder: Path) -> None:
    pids, peer = folder / "pids", folder / "peer.py"
    peer.write_text(SLEEPS.format(path=str(pids)))
    with bench(model, "--vs", f"'{sys.executable}' '{peer}'") as process:
        deadline = time.monotonic() + WAIT
        while not pids.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=WAIT)
    assert (process.returncode, out, errors) == (130, "", "")
    assert gone(pids)
