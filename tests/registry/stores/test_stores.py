"""Models that other programs keep are found as they are, and nothing of theirs is changed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import ModelFileError
from registry.stores.folders import at_path, in_folder, in_llama_cache, in_lm_studio
from registry.stores.found import checked
from registry.stores.hub_cache import in_hub_cache
from registry.stores.ollama import in_ollama
from registry.stores.roots import Roots, survey
from tests.registry.stores.models import Made, contents, put_in_hub, put_in_ollama, sha256

REVISION = "0123456789abcdef0123456789abcdef01234567"


def test_the_hubs_cache_is_read_with_hashes_revisions_and_towers(tmp_path: Path, made: Made) -> None:
    tower, seeing = made.tower, made.seeing
    put_in_hub(tmp_path, "labs/Seeing-GGUF", REVISION, {"tiny.gguf": seeing, "mmproj-tiny.gguf": tower})
    (found,) = in_hub_cache(tmp_path).found
    assert (found.name, found.repository, found.revision) == ("labs/Seeing-GGUF/tiny", "labs/Seeing-GGUF", REVISION)
    assert [(file.name, file.sha256) for file in found.files] == [("tiny.gguf", sha256(seeing))]
    assert found.tower is None
    found = checked(found)
    assert found.problem == ""
    assert [file.name for file in found.all_files] == ["tiny.gguf", "mmproj-tiny.gguf"]
    assert found.nbytes == seeing.stat().st_size + tower.stat().st_size


def test_a_tower_of_the_repository_is_for_models_in_its_folders(tmp_path: Path, made: Made) -> None:
    files = {"Q8/tiny.gguf": made.seeing, "mmproj-tiny.gguf": made.tower}
    snapshot = put_in_hub(tmp_path, "labs/Seeing-GGUF", REVISION, files)
    (found,) = map(checked, in_hub_cache(tmp_path).found)
    assert (found.folder, found.problem) == ("Q8", "")
    assert found.tower is not None
    assert found.tower.path == snapshot / "mmproj-tiny.gguf"


def test_revisions_with_the_same_bytes_are_one_and_others_are_not(tmp_path: Path, made: Made) -> None:
    old, new = "a" * 40, "b" * 40
    put_in_hub(tmp_path, "labs/Two", old, {"same.gguf": made.plain, "changed.gguf": made.plain})
    put_in_hub(tmp_path, "labs/Two", new, {"same.gguf": made.plain, "changed.gguf": made.other})
    found = {(model.name, model.revision) for model in in_hub_cache(tmp_path).found}
    # The old revision's file is the bytes of `same` once more, under another name: it is known.
    assert found == {("labs/Two/same", new), ("labs/Two/changed", new)}


def test_without_links_the_hubs_cache_holds_the_files_themselves(tmp_path: Path, made: Made) -> None:
    put_in_hub(tmp_path, "labs/Plain", REVISION, {"plain.gguf": made.plain}, links=False)
    (found,) = map(checked, in_hub_cache(tmp_path).found)
    assert (found.problem, found.weights.sha256) == ("", "")


def test_a_cache_that_was_half_cleared_says_what_is_missing(tmp_path: Path, made: Made) -> None:
    snapshot = put_in_hub(tmp_path, "labs/Split", REVISION, {part.name: part for part in made.parts})
    (snapshot / made.parts[1].name).resolve().unlink()
    put_in_hub(tmp_path, "labs/Gone", REVISION, {"plain.gguf": made.plain})
    (tmp_path / "models--labs--Gone" / "blobs" / sha256(made.plain)).unlink()
    found = {model.name: checked(model).problem for model in in_hub_cache(tmp_path).found}
    assert made.parts[1].name in found["labs/Split/big"]
    assert "plain.gguf" in found["labs/Gone/plain"]


def test_a_checkpoint_in_the_hubs_cache_is_one_model(tmp_path: Path, made: Made) -> None:
    files = {path.name: path for path in made.checkpoint.iterdir()}
    files |= {f"text_encoder/{name}": path for name, path in files.items()}
    snapshot = put_in_hub(tmp_path, "labs/Whole", REVISION, files)
    (found,) = map(checked, in_hub_cache(tmp_path).found)
    assert (found.name, found.opens, found.problem) == ("labs/Whole/Whole", snapshot, "")
    assert {file.name for file in found.files} >= {"config.json", "tokenizer.json", "model.safetensors.index.json"}
    assert len([file for file in found.files if file.name.endswith(".safetensors")]) > 1


def test_lm_studios_folders_name_the_repository(store: Path, tmp_path: Path, made: Made) -> None:
    root = tmp_path / "models"
    place = root / "labs" / "Big-GGUF"
    place.mkdir(parents=True)
    for part in made.parts:
        shutil.copy(part, place)
    (found,) = map(checked, in_lm_studio(root).found)
    assert (found.name, found.problem, len(found.files)) == ("labs/Big-GGUF/big", "", len(made.parts))
    assert found.nbytes == sum(part.stat().st_size for part in made.parts)
    assert found.opens.name.endswith(f"-00001-of-{len(made.parts):05}.gguf")


def test_ollamas_manifests_pair_a_model_with_its_tower(tmp_path: Path, made: Made) -> None:
    put_in_ollama(tmp_path, "registry.ollama.ai/library/tiny/3b-q4", {"model": made.seeing, "projector": made.tower})
    put_in_ollama(tmp_path, "hf.co/labs/Plain-GGUF/Q8_0", {"model": made.plain, "license": made.plain})
    found = {model.name: checked(model) for model in in_ollama(tmp_path).found}
    assert set(found) == {"tiny:3b-q4", "hf.co/labs/Plain-GGUF:Q8_0"}
    model = found["tiny:3b-q4"]
    assert model.problem == ""
    assert [(file.name, file.sha256) for file in model.all_files] == [
        ("tiny-3b-q4.gguf", sha256(made.seeing)),
        ("mmproj-tiny-3b-q4.gguf", sha256(made.tower)),
    ]
    assert found["hf.co/labs/Plain-GGUF:Q8_0"].tower is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"layers": [{}]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../x", "size": 1}]}',
        b'{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:00", "size": -1}]}',
    ],
)
def test_a_damaged_manifest_is_no_model(tmp_path: Path, made: Made, content: bytes) -> None:
    put_in_ollama(tmp_path, "registry.ollama.ai/library/tiny/good", {"model": made.plain})
    put_in_ollama(tmp_path, "registry.ollama.ai/library/tiny/bad", {"model": made.plain}).write_bytes(content)
    assert [model.name for model in in_ollama(tmp_path).found] == ["tiny:good"]


def test_ollamas_unfinished_and_adapted_models_say_so(tmp_path: Path, made: Made) -> None:
    put_in_ollama(tmp_path, "registry.ollama.ai/library/cut/latest", {"model": made.plain})
    with (tmp_path / "blobs" / f"sha256-{sha256(made.plain)}").open("r+b") as file:
        file.truncate(100)
    put_in_ollama(tmp_path, "registry.ollama.ai/library/tuned/latest", {"model": made.other, "adapter": made.tower})
    problems = {model.name: model.problem for model in in_ollama(tmp_path).found}
    assert "pull it again" in problems["cut:latest"]
    assert "put together" in problems["tuned:latest"]


def test_llama_cpps_cache_is_named_by_its_manifests(tmp_path: Path, made: Made) -> None:
    shutil.copy(made.seeing, tmp_path / "my_labs_Seeing-GGUF_tiny.gguf")
    shutil.copy(made.tower, tmp_path / "my_labs_Seeing-GGUF_mmproj-tiny.gguf")
    shutil.copy(made.plain, tmp_path / "loose.gguf")
    (tmp_path / "manifest=my_labs=Seeing-GGUF=latest.json").write_text(json.dumps({}))
    found = {model.name: checked(model) for model in in_llama_cache(tmp_path).found}
    assert set(found) == {"my_labs/Seeing-GGUF/tiny", "loose"}
    seeing = found["my_labs/Seeing-GGUF/tiny"]
    assert (seeing.problem, [file.name for file in seeing.all_files]) == ("", ["tiny.gguf", "mmproj-tiny.gguf"])
    assert (found["loose"].problem, found["loose"].tower) == ("", None)


def test_a_folder_is_looked_through_and_left_as_it_was(store: Path) -> None:
    before = contents(store)
    found = {model.name: checked(model) for model in in_folder(store).found}
    assert {name: model.problem for name, model in found.items()} == dict.fromkeys(
        ["plain", "other", "split/big", "seeing/tiny", "checkpoint"], ""
    )
    assert contents(store) == before


def test_broken_files_are_found_and_say_why(store: Path) -> None:
    with (store / "plain.gguf").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 1000)
    (store / "page.gguf").write_text("<!DOCTYPE html><title>404</title>")
    (store / "split" / sorted(os.listdir(store / "split"))[0]).unlink()
    (store / "PyTorch").mkdir()
    (store / "PyTorch" / "config.json").write_text("{}")
    (store / "PyTorch" / "pytorch_model.bin").write_bytes(b"PK\3\4")
    problems = {model.name: checked(model).problem for model in in_folder(store).found}
    assert "plain.gguf" in problems["plain"]
    assert "web page" in problems["page"]
    assert "00001-of" in problems["split/big"]
    assert "run code" in problems["PyTorch"]
    assert problems["other"] == ""


def test_a_model_whose_architecture_is_unknown_says_so(store: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(store / "strange.gguf", "starling")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (problem,) = [checked(model).problem for model in in_folder(store).found if model.name == "strange"]
    assert "starling" in problem


def test_circles_of_links_hidden_folders_and_pipes_are_passed_over(store: Path) -> None:
    names = sorted(model.name for model in in_folder(store).found)
    (store / "seeing" / "round").symlink_to(store, target_is_directory=True)
    (store / "self").symlink_to("self")
    shutil.copytree(store / "split", store / ".hidden")
    if hasattr(os, "mkfifo"):
        os.mkfifo(store / "pipe.gguf")
    assert sorted(model.name for model in in_folder(store).found if "self" not in model.name) == names


def test_bounds_are_told(store: Path) -> None:
    deep = in_folder(store, depth=0)
    assert "deeper" in deep.sentence
    assert {model.name for model in deep.found} == {"plain", "other"}
    assert "first 3 files" in in_folder(store, most=3).sentence
    assert in_folder(store).sentence == ""


def test_looking_can_be_cancelled(store: Path) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        in_folder(store, cancel)


def test_absent_stores_are_empty(tmp_path: Path) -> None:
    nowhere = (tmp_path / "no",)
    result = survey(Roots(nowhere, nowhere, nowhere, nowhere))
    assert (result.found, result.sentence) == ((), "")


def test_all_stores_together_name_each_model_once(tmp_path: Path, made: Made) -> None:
    put_in_hub(tmp_path / "hub", "labs/A", REVISION, {"plain.gguf": made.plain})
    put_in_ollama(tmp_path / "ollama", "registry.ollama.ai/library/a/latest", {"model": made.other})
    both = Roots((tmp_path / "hub", tmp_path / "hub"), (), (tmp_path / "ollama",), (tmp_path / "hub",))
    assert [(model.store, model.name) for model in survey(both).found] == [
        ("hub", "labs/A/plain"),
        ("ollama", "a:latest"),
    ]


def test_the_environment_says_where_stores_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "oll"))
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "lla"))
    roots = Roots.default()
    assert roots.hub == (tmp_path / "hf", tmp_path / "lla")
    assert (roots.ollama[0], roots.llama_cpp) == (tmp_path / "oll", (tmp_path / "lla",))


def test_a_path_means_the_whole_model(store: Path) -> None:
    part = sorted((store / "split").iterdir())[1]
    assert len(at_path(part).files) == len(list((store / "split").iterdir()))
    assert at_path(store / "checkpoint" / "config.json").opens == store / "checkpoint"
    assert at_path(store / "checkpoint").name == "checkpoint"
    assert at_path(store / "seeing").opens == store / "seeing" / "tiny.gguf"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("seeing/mmproj-tiny.gguf", "vision tower"),
        ("model.bin", "run code"),
        ("model.pth", "run code"),
        ("notes.txt", "not a model"),
        ("none.gguf", "no file"),
        (".", "holds 5 models"),
        ("empty", "without a model"),
    ],
)
def test_what_is_no_model_is_refused_with_a_sentence(store: Path, name: str, words: str) -> None:
    for file in ("model.bin", "model.pth", "notes.txt"):
        (store / file).write_bytes(b"some text")
    (store / "empty").mkdir()
    with pytest.raises(ModelFileError, match=words):
        at_path(store / name)
