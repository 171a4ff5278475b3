from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import gguf
import pytest

from engine import (
    BudgetError,
    Budgets,
    Cancel,
    Cancelled,
    ContextError,
    Engine,
    Event,
    Finished,
    LoadProgress,
    Message,
    MillstreamError,
    ModelFileError,
    Settings,
    SettingsError,
    Text,
    UnsupportedModelError,
    describe,
)
from engine.kernels.ops import Handle, Tensor
from engine.kernels.plain import PlainOps
from engine.text import Tokenizer
from tests.tiny_chat import CONTEXT, write_tiny_chat

HELLO = (Message("user", "Hello there"),)
SHORT = Settings(max_tokens=8, temperature=1.2, top_k=0, seed=3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_chat(tmp_path_factory.mktemp("山 é") / "tiny.gguf")


@pytest.fixture
def engine(model: Path) -> Iterator[Engine]:
    with Engine.load(model, Budgets(threads=1)) as loaded:
        yield loaded


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def finish_of(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_a_chat_goes_on_where_the_turn_before_ended(engine: Engine) -> None:
    first = list(engine.chat(HELLO, SHORT))
    assert finish_of(first).usage.cached_tokens == 0
    messages = [*HELLO, Message("assistant", text_of(first)), Message("user", "And now?")]
    second = list(engine.chat(messages, SHORT))
    assert finish_of(second).usage.cached_tokens >= finish_of(first).usage.prompt_tokens
    with Engine.load(engine.info.path, Budgets(threads=1)) as fresh:
        assert text_of(list(fresh.chat(messages, SHORT))) == text_of(second)


def test_one_answer_whatever_the_threads_the_chunk_and_the_device(model: Path) -> None:
    ways = [
        {"budgets": Budgets(threads=1)},
        {"budgets": Budgets(threads=2, chunk=1)},
        {"budgets": Budgets(threads=2, chunk=7)},
        {"budgets": Budgets(), "ops": PlainOps()},
    ]
    answers = set()
    for way in ways:
        with Engine.load(model, **way) as engine:
            answers.add((text_of(list(engine.chat(HELLO, SHORT))), engine.fingerprint("A mill", 5)))
    assert len(answers) == 1


def test_raw_text_is_encoded_without_a_template_and_with_its_special_tokens(engine: Engine) -> None:
    events = list(engine.generate("<|turn|>ab", SHORT))
    assert finish_of(events).usage.prompt_tokens == 3


def test_a_fingerprint_takes_its_chunk_from_the_call_and_leaves_the_conversation_alone(engine: Engine) -> None:
    first = list(engine.chat(HELLO, SHORT))
    assert engine.fingerprint("A mill by the river", 4, chunk=1) == engine.fingerprint(
        "A mill by the river", 4, chunk=7
    )
    again = list(engine.chat(HELLO, SHORT))
    assert finish_of(again).usage.cached_tokens == finish_of(first).usage.prompt_tokens - 1


def test_measuring_tells_rates_and_bytes(engine: Engine, model: Path) -> None:
    measured = engine.measure(prompt_tokens=20, tokens=3)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}
    total = sum(int(tensor.n_bytes) for tensor in tensors.values())
    table = int(tensors["token_embd.weight"].n_bytes)
    assert measured.threads == engine.threads == 1
    assert measured.bytes_read == total
    assert measured.bytes_per_token == total - table + table // 260
    assert measured.peak_memory_bytes > total
    assert min(measured.prefill_tok_s, measured.decode_short_tok_s, measured.decode_long_tok_s) > 0


def test_info_and_describe_say_what_the_gguf_package_reads(engine: Engine, model: Path) -> None:
    info = describe(model)
    assert info == engine.info
    reader = gguf.GGUFReader(model)
    assert info.name == reader.get_field("general.name").contents() == "Tiny Chat"
    assert info.parameters == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert info.file_bytes == model.stat().st_size
    assert (info.architecture, info.layers, info.hidden_size) == ("llama", 2, 64)
    assert (info.context_length, info.vocabulary) == (CONTEXT, 260)
    by_type: dict[str, int] = {}
    for tensor in reader.tensors:
        by_type[tensor.tensor_type.name] = by_type.get(tensor.tensor_type.name, 0) + int(tensor.n_bytes)
    assert info.encodings == by_type
    assert list(info.encodings) == ["Q8_0", "F32"]


def test_a_name_from_a_file_is_one_printable_line_of_bounded_length(tmp_path: Path) -> None:
    path = write_tiny_chat(tmp_path / "tiny.gguf", name="Mill\x1b[2J\nbells " + "a" * 1000)
    assert describe(path).name == "Mill [2J bells " + "a" * 185


def test_memory_is_told_by_part_and_given_back(model: Path) -> None:
    engine = Engine.load(model, Budgets(threads=1, context=100, kv="f32"))
    list(engine.chat(HELLO, SHORT))
    held = engine.memory
    assert held.weights == engine.bytes_read == sum(engine.info.encodings.values())
    assert held.kv >= 2 * 2 * (16 + 16) * 100 * 4
    assert held.activations > 0
    engine.close()
    assert engine.memory.total == 0


def test_the_context_is_the_models_own_up_to_a_limit_or_what_was_asked_for(model: Path) -> None:
    with Engine.load(model) as engine:
        assert engine.context_length == CONTEXT
    with Engine.load(model, Budgets(context=40)) as engine:
        assert engine.context_length == 40
    with pytest.raises(SettingsError, match=r"context must be at most 256, .* not 257"):
        Engine.load(model, Budgets(context=257))


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(model: Path) -> None:
    with Engine.load(model, Budgets(context=30)) as engine:
        with pytest.raises(ContextError, match=r"33 tokens, but the context holds 30 tokens: .* larger .* 256"):
            engine.generate("x" * 33)
        with pytest.raises(ContextError, match=r"28 tokens and 4 more, but the context holds 30"):
            engine.fingerprint("x" * 28, 5)
        assert finish_of(list(engine.generate("x" * 30))).reason == "context"


def test_a_prompt_that_is_too_long_is_told_a_way_out_that_is_there(engine: Engine) -> None:
    with pytest.raises(ContextError, match="this model's largest: begin a new conversation or shorten"):
        engine.chat([Message("user", "x" * 300)])
    with pytest.raises(ContextError, match="this model's largest: shorten the text"):
        engine.generate("x" * 300)
    larger = r"begin a new conversation .* larger context \(Tiny Chat allows 256\)"
    with Engine.load(engine.info.path, Budgets(context=40)) as smaller, pytest.raises(ContextError, match=larger):
        smaller.chat([Message("user", "x" * 300)])


def test_what_cannot_fit_is_refused_without_being_encoded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*arguments: object, **more: object) -> list[int]:
        raise AssertionError("encoded")

    monkeypatch.setattr(Tokenizer, "encode", encode)
    monkeypatch.setattr(Tokenizer, "encode_chat", encode)
    endless = "x" * 1_000_000
    for request in (
        lambda: engine.chat([Message("user", endless)]),
        lambda: engine.generate(endless),
        lambda: engine.fingerprint(endless, 1),
    ):
        with pytest.raises(ContextError, match=r"has 10000\d\d characters, but the context holds 256 tokens"):
            request()


def test_what_a_template_leaves_out_does_not_count(tmp_path: Path) -> None:
    path = write_tiny_chat(tmp_path / "trims.gguf", template="{{ messages[-1].content | trim }}")
    with Engine.load(path) as engine:
        assert finish_of(list(engine.chat([Message("user", " " * 100_000 + "Hello")], SHORT))).usage.prompt_tokens == 5


@pytest.mark.parametrize("prompt", [""])
def test_an_empty_prompt_is_refused(engine: Engine, prompt: str) -> None:
    with pytest.raises(SettingsError, match="empty"):
        engine.generate(prompt)


def test_half_a_surrogate_pair_in_a_message_is_no_crash(engine: Engine) -> None:
    assert text_of(list(engine.chat([Message("user", "a\ud83d")], SHORT)))


def test_settings_are_refused_by_the_call_itself(engine: Engine) -> None:
    with pytest.raises(SettingsError, match="temperature"):
        engine.chat(HELLO, Settings(temperature=-1))
    with pytest.raises(SettingsError, match="n must be at least 1"):
        engine.fingerprint("a", 0)
    with pytest.raises(SettingsError, match="chunk must be at least 1"):
        engine.fingerprint("a", 1, chunk=0)


def test_a_second_request_while_a_reply_runs_is_refused_and_harmless(engine: Engine) -> None:
    events = engine.chat(HELLO, SHORT)
    unstarted = engine.chat(HELLO, SHORT)
    seen = [next(events), next(events)]
    for request in (
        lambda: engine.chat(HELLO, SHORT),
        lambda: engine.generate("a", SHORT),
        lambda: engine.fingerprint("a", 1),
        lambda: engine.measure(8, 2),
        lambda: next(unstarted),
    ):
        with pytest.raises(MillstreamError, match="still at work"):
            request()
    seen += events
    assert finish_of(seen).reason == "length"
    assert text_of(list(engine.chat(HELLO, SHORT))) == text_of(seen)


def test_leaving_the_loop_frees_the_engine(engine: Engine) -> None:
    for event in engine.chat(HELLO, SHORT):
        if isinstance(event, Text):
            break
    assert finish_of(list(engine.chat(HELLO, SHORT))).reason == "length"


def test_a_reply_that_was_never_begun_claims_nothing(engine: Engine) -> None:
    engine.chat(HELLO, SHORT)
    assert finish_of(list(engine.chat(HELLO, SHORT))).reason == "length"


def test_cancel_from_another_thread_ends_the_reply(engine: Engine) -> None:
    cancel = Cancel()
    events = []
    for event in engine.chat(HELLO, Settings(temperature=1.5, top_k=0, seed=1), cancel=cancel):
        events.append(event)
        if isinstance(event, Text) and not cancel.is_set():
            thread = threading.Thread(target=cancel.set)
            thread.start()
            thread.join()
    assert finish_of(events).reason == "cancelled"


def test_use_after_close_is_refused(model: Path) -> None:
    engine = Engine.load(model)
    running = engine.chat(HELLO, SHORT)
    next(running)
    engine.close()
    engine.close()
    for request in (
        lambda: next(running),
        lambda: engine.chat(HELLO),
        lambda: engine.generate("a"),
        lambda: engine.fingerprint("a", 1),
        lambda: engine.measure(8, 2),
    ):
        with pytest.raises(MillstreamError, match="closed: load the model again"):
            request()
    assert engine.info.name == "Tiny Chat"


class SlowOps(PlainOps):
    """Takes its time in the middle of a pass, and keeps a log."""

    def __init__(self) -> None:
        self.in_a_pass = threading.Event()
        self.log: list[str] = []

    def embed(self, table: Handle, tokens: Sequence[int], *, scale: float = 1.0) -> Tensor:
        self.log.append("begins")
        self.in_a_pass.set()
        time.sleep(0.2)
        self.log.append("ends")
        return super().embed(table, tokens, scale=scale)

    def close(self) -> None:
        self.log.append("closed")


def test_close_from_another_thread_waits_for_the_step_and_ends_the_reply(model: Path) -> None:
    ops, refused = SlowOps(), []
    engine = Engine.load(model, ops=ops)

    def answer() -> None:
        try:
            list(engine.chat(HELLO, SHORT))
        except MillstreamError as error:
            refused.append(str(error))

    thread = threading.Thread(target=answer)
    thread.start()
    assert ops.in_a_pass.wait(30)
    engine.close()
    thread.join(30)
    assert ops.log == ["begins", "ends", "closed"]
    assert len(refused) == 1 and "closed" in refused[0]


class ClosableOps(PlainOps):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_cancelled_load_leaves_nothing_behind(model: Path) -> None:
    cancel, ops, seen = Cancel(), ClosableOps(), []

    def progress(step: LoadProgress) -> None:
        seen.append(step)
        cancel.set()

    with pytest.raises(Cancelled):
        Engine.load(model, progress=progress, cancel=cancel, ops=ops)
    assert len(seen) == ops.closed == 1


def test_load_progress_ends_at_the_total(model: Path) -> None:
    seen: list[LoadProgress] = []
    with Engine.load(model, progress=seen.append) as engine:
        assert seen[-1].done == seen[-1].total == engine.bytes_read


def test_a_model_without_a_template_goes_on_from_raw_text_alone(tmp_path: Path) -> None:
    with Engine.load(write_tiny_chat(tmp_path / "base.gguf", template=None)) as engine:
        with pytest.raises(UnsupportedModelError, match="no chat template"):
            engine.chat(HELLO)
        assert finish_of(list(engine.generate("Hello", SHORT))).reason == "length"


def test_weights_beyond_the_free_memory_are_refused_before_they_are_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poor:
        total = 4 << 30
        available = 50_000

    monkeypatch.setattr("psutil.virtual_memory", Poor)
    seen: list[LoadProgress] = []
    with pytest.raises(BudgetError, match=r"Tiny Chat needs at least \d+\.\d kB of memory .*, but 0 bytes is free"):
        Engine.load(model, progress=seen.append)
    assert seen == []


def test_an_unknown_architecture_is_refused_by_load_and_describe(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "perceptron")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for refuse in (describe, Engine.load):
        with pytest.raises(UnsupportedModelError, match=r"perceptron.*llama"):
            refuse(path)


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "text"])
def test_a_bad_file_is_refused_by_load_and_describe(model: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "bad.gguf"
    whole = model.read_bytes()
    content = {"empty": b"", "truncated": whole[:-3000], "text": b"Once upon a time there was a mill."}.get(damage)
    if content is not None:
        path.write_bytes(content)
    for refuse in (describe, Engine.load):
        with pytest.raises(ModelFileError, match=r"bad\.gguf"):
            refuse(path)


def in_a_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_face_imports_no_numbers() -> None:
    assert (
        in_a_fresh_process("import sys, engine; print('numpy' in sys.modules, 'psutil' in sys.modules)")
        == "False False"
    )


def test_a_chat_on_the_processor_imports_no_torch(model: Path) -> None:
    code = (
        "import sys, engine\n"
        f"with engine.Engine.load({str(model)!r}) as loaded:\n"
        "    list(loaded.chat([engine.Message('user', 'Hi')], engine.Settings(max_tokens=2)))\n"
        "print('torch' in sys.modules)"
    )
    assert in_a_fresh_process(code) == "False"


def test_every_public_name_is_there() -> None:
    import engine as face

    assert sorted(face.__all__) == sorted({*face.__all__})
    for name in {*face.__all__} - {"Effort", "Event", "Role", "FinishReason"}:
        assert getattr(face, name).__name__ == name
    assert face.Event and face.Role and face.FinishReason
    with pytest.raises(AttributeError):
        face.__getattr__("nothing")


def test_a_file_with_a_layer_that_its_configuration_does_not_count_is_refused(model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    at = data.index(b"llama.block_count") + len(b"llama.block_count") + 4  # after the value's type
    assert int.from_bytes(data[at : at + 4], "little") > 1
    data[at : at + 4] = (1).to_bytes(4, "little")
    (tmp_path / "half.gguf").write_bytes(data)
    with pytest.raises(ModelFileError, match=r"half\.gguf holds blk\.1\..* and \d+ more, which its configuration has"):
        Engine.load(tmp_path / "half.gguf")
