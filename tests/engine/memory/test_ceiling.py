"""A model many times larger than what it is granted, its process watched from outside: what it holds, and reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cached_pages import forget
from bench.make_big import PRESETS, Shape, copied_tokenizer, write_big
from engine.formats import open_index
from engine.formats.gguf_header import read_header
from tests.bytewise import bytewise
from tests.outside import Watched, bare_data, bytes_read, in_group, linux, millstream, no_group, watch, within

pytestmark = linux

MB = 10**6
OVERHEAD = 150 * MB
"""The most that interpreter, libraries and kernels are to take beside what was granted."""
TEXT = "Once upon a time there was a little mill by the river, and its wheel turned day and night. "
TOKENS = 6


@dataclass(frozen=True)
class Large:
    """A file, what is granted to it, and how it is run."""

    path: Path
    shape: Shape
    ram: int
    options: tuple[object, ...]

    def command(self, name: str, *more: object) -> list[str]:
        return millstream(name, self.path, "--ram", f"{self.ram // MB}MB", *self.options, "--json", *more)

    def unbounded(self, name: str, *more: object) -> list[str]:
        """With all of it in memory."""
        granted = self.path.stat().st_size + 1000 * MB
        return millstream(name, self.path, "--ram", f"{granted // MB}MB", *self.options, "--json", *more)

    def run(self, *command: str) -> Watched:
        """Watched on a cold file."""
        forget(self.path)
        return watch(command, self.path)


DENSE = Shape(layers=24, hidden=512, heads=8, kv_heads=1, head_dim=64, ffn=2048, tied=True, feed_forward="Q6_K")
MIXTURE = Shape(layers=8, hidden=512, heads=8, kv_heads=1, head_dim=128, ffn=512, experts=24, experts_used=4)
SMALL = ("--context", 320, "--chunk", 32, "--threads", 2)
LARGE = ("--context", 512, "--threads", 2)


@pytest.fixture(scope="module", params=["dense", "mixture"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    shape = {"dense": DENSE, "mixture": MIXTURE}[request.param]
    path = write_big(tmp_path_factory.mktemp("large") / "山 é.gguf", shape, bytewise)
    yield Large(path, shape, path.stat().st_size // 8 // MB * MB, SMALL)
    path.unlink()


@pytest.fixture(scope="module", params=["dense-2gb", "mixture-4gb"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, starter: Path) -> Iterator[Large]:
    shape = PRESETS[request.param]
    path = write_big(tmp_path_factory.mktemp("large") / "large.gguf", shape, copied_tokenizer(starter))
    yield Large(path, shape, 1000 * MB if shape.experts else 256 * MB, LARGE)
    path.unlink()


def test_process_and_cache_stay_within_what_was_granted(small: Large) -> None:
    assert small.path.stat().st_size >= 8 * small.ram
    check_ceiling(small)


@pytest.mark.slow
def test_process_and_cache_of_a_large_file_stay_within_what_was_granted(large: Large) -> None:
    assert large.path.stat().st_size >= (4 if large.shape.experts else 8) * large.ram
    check_ceiling(large)


def check_ceiling(large: Large) -> None:
    """Prefill in several chunks and decoding, with the bits of the model that is all in memory."""
    told = plan_of(large)
    assert told["ram"] == large.ram and told["overhead"] <= OVERHEAD
    assert told["context"] == large.options[1]
    question = ("-p", TEXT * 3, "-n", TOKENS)
    seen = large.run(*large.command("fingerprint", *question))
    assert seen.looks > 50
    assert seen.together <= large.ram + told["overhead"], _millions(seen)
    # The header, vocabulary and all, is read as any file is, and its pages are given back.
    header = read_header(large.path).data_start
    assert seen.cached <= header + MB, _millions(seen)
    whole = large.run(*large.unbounded("fingerprint", *question))
    assert whole.json() == seen.json()
    assert whole.cached <= header + MB, "a budget counts the system's copy where all of it is in memory, too"


def test_the_overhead_that_a_plan_states_is_what_a_process_takes(small: Large) -> None:
    """Neither less, which would break the ceiling, nor a cushion of half as much again."""
    overhead = plan_of(small)["overhead"]
    seen = small.run(*small.command("fingerprint", "-p", TEXT, "-n", 2))
    assert seen.resident - small.ram <= overhead <= 1.5 * seen.resident


def test_a_drive_that_was_never_measured_is_measured_within_it(small: Large, tmp_path: Path) -> None:
    ceiling = small.ram + plan_of(small)["overhead"]
    seen = small.run("env", f"MILLSTREAM_HOME={tmp_path}", *small.command("fingerprint", "-p", TEXT, "-n", 1))
    assert seen.json() and list(tmp_path.rglob("*.json"))
    assert seen.together <= ceiling, _millions(seen)


def test_a_process_that_is_refused_more_answers_the_same(small: Large) -> None:
    """From its birth, the kernel gives it no more private memory than a bare interpreter has, what was granted and what
    the plan states beside it; reserved memory counts that nobody ever touches."""
    question = ("-p", TEXT * 3, "-n", TOKENS, "--io-threads", 8)
    limit = bare_data() + small.ram + plan_of(small)["overhead"]
    limited = small.run(*within(small.command("fingerprint", *question), limit))
    assert limited.json() == small.run(*small.unbounded("fingerprint", *question)).json()
    refused = small.run(*within(small.unbounded("fingerprint", *question), limit))
    assert refused.code != 0 and "The system refused" in refused.errors


def test_a_group_that_may_hold_no_more_lets_it_live_and_answer_the_same(small: Large) -> None:
    """The kernel itself counts here, its cache of the file included, and would kill."""
    if reason := no_group():
        pytest.skip(reason)
    command = small.command("fingerprint", "-p", TEXT, "-n", TOKENS)
    alone = small.run(*command).json()
    limit = small.ram + plan_of(small)["overhead"]
    assert small.run(*in_group(command, limit)).json() == alone


def test_the_weights_that_do_not_stay_are_read_once_a_token(small: Large) -> None:
    check_reads(small)


@pytest.mark.slow
def test_the_weights_of_a_large_file_that_do_not_stay_are_read_once_a_token(large: Large) -> None:
    check_reads(large)


def check_reads(large: Large) -> None:
    """Counted by the engine, within 1 % of what the file's own index says, 3 % for experts; and seen from outside,
    where whole pages are read, and whatever is read ahead."""
    experts, others = passed(large)
    others = max(0, others - plan_of(large)["weights"])
    measured = large.run(*large.command("bench", "--prompt-tokens", 16, "--tokens", 8)).json()
    if experts:
        counted = others + experts * (1 - (measured["expert_hit_rate"] or 0))
        assert measured["read_per_token"] == pytest.approx(counted, rel=0.03)
    else:
        assert measured["read_per_token"] == pytest.approx(others, rel=0.01)
    more, less = (reads_of(large, tokens) for tokens in (14, 6))
    assert (more - less) / 8 <= (experts + others) * 1.05 + MB


def passed(large: Large) -> tuple[int, int]:
    """Bytes of weights that one token passes over, by the file's own index: of experts, and of all else, where of a
    table that is not the head as well it is one row."""
    tensors = dict(open_index(large.path).tensors)
    every = sum(tensors.pop(name).nbytes for name in list(tensors) if name.endswith("_exps.weight"))
    others = sum(tensor.nbytes for tensor in tensors.values())
    table = tensors["token_embd.weight"]
    if not large.shape.tied:
        others -= table.nbytes - table.nbytes // table.shape[0]
    return every * large.shape.experts_used // max(large.shape.experts, 1), others


def plan_of(large: Large) -> dict[str, int]:
    """What the program says that it is going to do."""
    told: dict[str, int] = large.run(*large.command("plan")).json()
    return told


def reads_of(large: Large, tokens: int) -> int:
    """Bytes that a whole run reads through the system, by its last count before it ended."""
    counts = [0]
    forget(large.path)
    command = large.command("fingerprint", "-p", "The mill", "-n", tokens)
    watch(command, large.path, meanwhile=lambda pid: counts.append(bytes_read(pid))).json()
    return max(counts)


def _millions(seen: Watched) -> dict[str, float]:
    told = dataclasses.asdict(seen)
    return {name: value / MB for name, value in told.items() if name in ("resident", "anonymous", "cached")}
