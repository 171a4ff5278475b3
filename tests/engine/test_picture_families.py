"""Text and pictures in every family that sees, against Transformers: its own processor, tower and text model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import Budgets, Engine, Message, PrefillProgress, Settings, SettingsError, UnsupportedModelError, describe
from engine.decode.cache import KVCache
from engine.decode.forward import Forward
from engine.decode.prompt import Prompt
from engine.memory.meter import Meter
from engine.vision.projector import read_projector
from tests.engine.devices import CONTRACT, DEVICES
from tests.engine.formats.checkpoints import change, write_checkpoint
from tests.engine.formats.test_checkpoint_runs import output
from tests.engine.models.judge import tolerance
from tests.engine.sights import CHECKPOINTS, SIGHTS, Sight, Turn, messages, png, publish, publish_checkpoint
from tests.tiny import tiny

GREEDY = Settings(temperature=0, max_tokens=5)
BUDGETS = Budgets(threads=2, context=512, kv="f32", max_patches=630)
FIRST, SECOND, THIRD = png(60, 44, 1), png(29, 50, 2), png(48, 48, 3)
CONVERSATIONS: dict[str, list[Turn]] = {
    "one": [("user", (FIRST, "What?"))],
    "several": [("user", ("a", SECOND, "bc", FIRST, "Which?"))],
    "in the second turn": [
        ("user", (FIRST, "What?")),
        ("assistant", ("A mill.",)),
        ("user", ("And", SECOND, "this?")),
    ],
    "text before": [("user", ("Hello",)), ("assistant", ("Yes?",)), ("user", (THIRD, "?"))],
}


@pytest.fixture(scope="module", params=[*SIGHTS, *(f"folder: {name}" for name in CHECKPOINTS)])
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sight]:
    """A GGUF file with its tower beside it, or the folder of a checkpoint."""
    folder, name = tmp_path_factory.mktemp("see"), request.param
    if name in SIGHTS:
        return folder / "tiny.gguf", publish(folder, name)
    return folder, publish_checkpoint(folder, name.removeprefix("folder: "))


def prompt_of(engine: Engine, turns: Sequence[Turn]) -> Prompt:
    told = messages(turns)
    images = [image for message in told for image in message.images]
    ids = engine._chat.encode(told, GREEDY, (), engine._eyes.form)
    return Prompt.of(engine._with_pictures(ids, images, None))


def logits(engine: Engine, prompt: Prompt, chunk: int) -> np.ndarray:
    """Of every row."""
    with closing(KVCache(engine._ops, engine._model.caches, len(prompt), "f32", Meter())) as cache:
        forward = Forward(engine._model, engine._ops, cache, engine._see)
        forward.begin(prompt)
        rows = []
        while len(cache) < len(prompt):
            rows.append(forward.logits(forward.advance(prompt.piece(len(cache), chunk))).copy())
        return np.concatenate(rows)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_prompt_has_the_rows_and_the_logits_of_transformers(published: tuple[Path, Sight], name: str) -> None:
    path, sight = published
    inputs = sight.inputs(CONVERSATIONS[name])
    truth = sight.logits(inputs)
    made = {}
    for device in DEVICES if name == "several" else ("native",):
        with Engine.load(path, BUDGETS, ops=DEVICES[device]()) as engine:
            prompt = prompt_of(engine, CONVERSATIONS[name])
            assert [max(token, -1) for token in prompt.tokens] == [
                -1 if token == sight.row else token for token in inputs["input_ids"][0].tolist()
            ]
            for chunk in (1, 7, 512) if device == "native" else (512,):
                made[device, chunk] = logits(engine, prompt, chunk)
                error = np.abs(made[device, chunk] - truth).max()
                assert error <= tolerance(device, "f32") * np.abs(truth).max(), (device, chunk)
    assert len({made[key].tobytes() for key in made if key[0] in CONTRACT}) == 1


def test_a_conversation_goes_on_as_that_of_transformers_and_keeps_the_first_picture(
    published: tuple[Path, Sight],
) -> None:
    path, sight = published
    turns = CONVERSATIONS["in the second turn"]
    with Engine.load(path, BUDGETS) as engine:
        list(engine.chat(messages(turns[:1]), GREEDY))
        events = list(engine.chat(messages(turns), GREEDY))
        kept = next(event.cached for event in events if isinstance(event, PrefillProgress))
        ours = [sight.row if token < 0 else token for token in engine._cache.tokens]
    wanted = sight.reply(turns, GREEDY.max_tokens)
    assert ours == wanted[: len(ours)] and len(ours) >= len(wanted) - 1
    assert kept > wanted.index(sight.row) + 1


def test_the_picture_makes_a_difference(published: tuple[Path, Sight]) -> None:
    with Engine.load(published[0], BUDGETS) as engine:
        first, second = (
            logits(engine, prompt_of(engine, [("user", (png(60, 44, seed), "?"))]), 512)[-1] for seed in (5, 6)
        )
    assert np.abs(first - second).max() > 0.02 * np.abs(first).max()


def test_a_folder_and_a_picture_are_answered_from_the_command_line(tmp_path: Path) -> None:
    publish_checkpoint(tmp_path, "qwen3vl", dtype=torch.bfloat16)
    (tmp_path / "seen.png").write_bytes(FIRST.data)
    image = str(tmp_path / "seen.png")
    reply = output("run", str(tmp_path), "--image", image, "-p", "What?", "--max-tokens", "3", "--temperature", "0")
    assert reply["usage"]["completion_tokens"] == 3
    assert output("info", str(tmp_path))["vision"] == "qwen3vl_merger"


def test_a_folder_of_a_text_model_has_no_eyes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tiny("qwen3"))
    assert describe(tmp_path).vision == ""
    with Engine.load(tmp_path) as engine, pytest.raises(SettingsError, match="no vision tower"):
        engine.chat([Message("user", "?", images=(FIRST,))], GREEDY)


def test_a_folder_whose_tower_cannot_be_read_says_why_once_it_is_to_see(tmp_path: Path) -> None:
    publish_checkpoint(tmp_path, "qwen3vl")
    (tmp_path / "preprocessor_config.json").unlink()
    with Engine.load(tmp_path) as engine:
        assert list(engine.chat([Message("user", "?")], GREEDY))
        with pytest.raises(SettingsError, match=r"cannot see pictures\..*no preprocessor_config\.json"):
            engine.chat([Message("user", "?", images=(FIRST,))], GREEDY)


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("vision_config", {"hidden_activation": "relu"}, "hidden_activation 'relu'"),
        ("vision_config", {"hidden_activation": "r" * 2**20}, r"^.{,200}$"),
        ("vision_config", {"num_key_value_heads": 1}, "num_key_value_heads 1"),
        ("vision_config", {"rope_parameters": {"rope_theta": 50.0}}, r"rope_theta 50\.0"),
        ("text_config", {"use_bidirectional_attention": "vision"}, "use_bidirectional_attention 'vision'"),
        (None, {"max_soft_tokens": 70}, "max_soft_tokens 70"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_gemma4_that_looks_in_another_way_is_refused(
    part: str | None, changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    publish_checkpoint(tmp_path, "gemma4")
    if part is None:
        change(tmp_path / "preprocessor_config.json", **changes)
    else:
        inner = json.loads((tmp_path / "config.json").read_text("utf-8"))[part]
        change(tmp_path / "config.json", **{part: inner | changes})
    with pytest.raises(UnsupportedModelError, match=words):
        read_projector(tmp_path)
