"""Weights of a real file made NaN or infinite: the reply ends with the name of the first layer at fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.decode.fingerprint import fingerprint
from engine.decode.forward import Forward
from engine.decode.generate import generate
from engine.decode.measure import measure_rates
from engine.decode.prompt import Prompt
from engine.errors import NumericsError
from engine.formats import open_index
from engine.formats.index import TensorIndex
from engine.kernels.ops import Ops, Tensor
from engine.kernels.plain import PlainOps
from engine.text import Tokenizer
from engine.types import Settings
from tests.engine.devices import CONTRACT, DEVICES
from tests.tiny_chat import write_tiny_chat

MakeForward = Callable[..., Forward]
PROMPT = tuple(b"A mill by the river turns and turns, and the miller sleeps")
GREEDY = Settings(max_tokens=6, temperature=0)
NAN, INF = float("nan"), float("inf")

FAULTS = {
    "token_embd.weight": "token_embd.weight",
    "blk.0.attn_norm.weight": "layer 0 (the norm before blk.0.attn_q.weight)",
    "blk.0.attn_q.weight": "layer 0 (blk.0.attn_q.weight)",
    "blk.1.attn_k.weight": "layer 1 (blk.1.attn_k.weight)",
    "blk.1.attn_v.weight": "layer 1 (blk.1.attn_v.weight)",
    "blk.0.attn_output.weight": "layer 0 (blk.0.attn_output.weight)",
    "blk.1.ffn_norm.weight": "layer 1 (the norm before blk.1.ffn_gate.weight)",
    "blk.0.ffn_gate.weight": "layer 0 (blk.0.ffn_gate.weight or blk.0.ffn_up.weight)",
    "blk.1.ffn_up.weight": "layer 1 (blk.1.ffn_gate.weight or blk.1.ffn_up.weight)",
    "blk.1.ffn_down.weight": "layer 1 (blk.1.ffn_down.weight)",
    "output_norm.weight": "the norm before output.weight",
    "output.weight": "output.weight",
}
"""Where a bad number in each weight shows."""


@pytest.fixture(params=DEVICES)
def ops(request: pytest.FixtureRequest) -> Iterator[Ops]:
    with closing(DEVICES[request.param]()) as made:
        yield made


def poisoned(path: Path, tensor: str, value: float, row: int = 5) -> TensorIndex:
    """The tiny model with `value` for one norm weight, or for one scale of row `row` of a matrix."""
    index = open_index(write_tiny_chat(path))
    info = index.tensors[tensor]
    number = np.float32(value) if info.encoding == "F32" else np.float16(value)
    skipped = 0 if info.encoding == "F32" else info.nbytes // info.shape[0] * row
    data = bytearray(path.read_bytes())
    data[info.offset + skipped : info.offset + skipped + number.nbytes] = number.tobytes()
    path.write_bytes(data)
    return index


def reply(forward: Forward, tokenizer: Tokenizer, *, chunk: int = 512) -> None:
    for _ in generate(forward, tokenizer, Prompt(PROMPT), GREEDY, chunk=chunk):
        pass


def refusal(where: str, position: int) -> str:
    return f"NaN or infinity in {re.escape(where)}, first at position {position}: .* fetch it again"


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("tensor", FAULTS)
def test_the_first_layer_at_fault_is_named(
    make_forward: MakeForward, tokenizer: Tokenizer, ops: Ops, tmp_path: Path, tensor: str, value: float
) -> None:
    row = PROMPT[0] if tensor == "token_embd.weight" else 5
    file = poisoned(tmp_path / "poisoned.gguf", tensor, value, row)
    with pytest.raises(NumericsError, match=refusal(FAULTS[tensor], 0)):
        reply(make_forward(ops, file=file), tokenizer)


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_what_spoils_later_positions_is_told_with_its_own(
    make_forward: MakeForward, tokenizer: Tokenizer, ops: Ops, tmp_path: Path, chunk: int
) -> None:
    position = PROMPT.index(b"v"[0])
    file = poisoned(tmp_path / "poisoned.gguf", "token_embd.weight", NAN, PROMPT[position])
    forward = make_forward(ops, file=file)
    with pytest.raises(NumericsError, match=refusal("token_embd.weight", position)):
        reply(forward, tokenizer, chunk=chunk)
    assert forward.cache.tokens == PROMPT


@pytest.mark.parametrize("device", CONTRACT)
def test_a_fault_while_decoding_is_named_and_the_cache_holds_what_it_claims(
    make_forward: MakeForward, tokenizer: Tokenizer, tmp_path: Path, device: str
) -> None:
    sound = make_forward(capacity=80)
    reply(sound, tokenizer)
    written = sound.cache.tokens
    position = next(at for at in range(len(PROMPT) + 1, len(written)) if written[at] not in written[:at])
    file = poisoned(tmp_path / "poisoned.gguf", "token_embd.weight", INF, written[position])
    with closing(DEVICES[device]()) as ops:
        forward = make_forward(ops, capacity=80, file=file)
        with pytest.raises(NumericsError, match=refusal("token_embd.weight", position)):
            reply(forward, tokenizer)
        assert forward.cache.tokens == written[: position + 1]
        forward.cache.truncate(position)
        sound.cache.truncate(position)
        logits = [each.next_logits(each.advance([65])).copy() for each in (forward, sound)]
        assert logits[0].tobytes() == logits[1].tobytes()


@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_fingerprint_and_measure_name_it_too(make_forward: MakeForward, ops: Ops, tmp_path: Path, chunk: int) -> None:
    file = poisoned(tmp_path / "poisoned.gguf", "blk.1.ffn_down.weight", NAN)
    with pytest.raises(NumericsError, match=refusal("layer 1 (blk.1.ffn_down.weight)", 0)):
        fingerprint(make_forward(ops, file=file), PROMPT, 2, chunk=chunk)
    with pytest.raises(NumericsError, match=refusal("layer 1 (blk.1.ffn_down.weight)", 0)):
        measure_rates(make_forward(ops, file=file), PROMPT, 2, chunk=chunk)


class FaultyOps(PlainOps):
    """A machine that once turns a bit of the logits over."""

    faults = 0

    def host(self, x: Tensor) -> np.ndarray:
        values = super().host(x).copy()
        if values.shape[1] == 260 and not self.faults:
            self.faults = 1
            values[-1, 3] = NAN
        return values


def test_a_fault_that_does_not_come_again_is_blamed_on_the_machine(
    make_forward: MakeForward, tokenizer: Tokenizer
) -> None:
    with pytest.raises(NumericsError, match="not when it computed them again: this machine"):
        reply(make_forward(FaultyOps()), tokenizer)
