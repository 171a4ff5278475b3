"""A checkpoint from the command line to the reply."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import Budgets, Engine, Message, Settings
from engine.types import Finished
from tests.engine.formats.checkpoints import byte_level, change, sentencepiece, write_checkpoint
from tests.tiny import tiny

ROOT = Path(__file__).parents[3]
BOS = "<|bos|>"


def publish(folder: Path, **options: Any) -> Path:
    """A chat model with more rows than its tokenizer has tokens."""
    tokenizer = byte_level("llama-bpe", bos=BOS)
    model = tiny("llama", vocab_size=tokenizer.get_vocab_size() + 8, max_position_embeddings=256)
    return write_checkpoint(folder, model, tokenizer=tokenizer, **options)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("published") / "山 é", shard="60KB")


def output(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "app", *arguments, "--json"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_info_run_and_fingerprint_take_a_folder(checkpoint: Path) -> None:
    folder = str(checkpoint)
    assert output("info", folder)["name"] == "山 é"
    reply = output("run", folder, "-p", "The mill", "--max-tokens", "5", "--temperature", "0")
    assert reply["usage"]["completion_tokens"] == 5
    with Engine.load(checkpoint) as engine:
        wanted = engine.fingerprint("The mill", 4).sha256
    assert output("fingerprint", folder, "-p", "The mill", "-n", "4")["sha256"] == wanted


def test_the_same_weights_in_one_file_or_several_give_one_fingerprint(checkpoint: Path, folder: Path) -> None:
    with Engine.load(publish(folder)) as one, Engine.load(checkpoint, Budgets(threads=2)) as several:
        wanted = one.fingerprint("The miller's wheel", 8)
        for chunk in (1, 3, 512):
            assert several.fingerprint("The miller's wheel", 8, chunk=chunk) == wanted


def test_a_conversation_is_encoded_as_its_template_and_the_library_say_with_one_bos(checkpoint: Path) -> None:
    judge = byte_level("llama-bpe")
    rendered = judge.encode(f"{BOS}<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n").ids
    with Engine.load(checkpoint) as engine:
        last = list(engine.chat([Message("user", "Hi")], Settings(max_tokens=3, temperature=0)))[-1]
    assert isinstance(last, Finished)
    assert last.usage.prompt_tokens == len(rendered)


def test_a_vocabulary_of_pieces_runs(folder: Path) -> None:
    tokenizer = sentencepiece()
    write_checkpoint(folder, tiny("llama", vocab_size=tokenizer.get_vocab_size()), tokenizer=tokenizer)
    change(folder / "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    with Engine.load(folder) as engine:
        last = list(engine.generate("The mill's wheel", Settings(max_tokens=3, temperature=0)))[-1]
    assert isinstance(last, Finished)
    assert last.usage.prompt_tokens == len(tokenizer.encode("The mill's wheel").ids)
