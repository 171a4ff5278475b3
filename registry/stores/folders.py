"""Stores that are folders of plainly named files: LM Studio's, llama.cpp's, and any that a person names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from engine.cancel import Cancel
from engine.errors import ModelFileError
from engine.formats import open_index
from engine.formats.recognise import is_folder
from registry.stores.found import Found, FoundFile, Survey, tower_alone
from registry.stores.gather import UNSAFE, is_tower, models_in, stem
from registry.stores.walk import DEPTH, MOST, Walk


def in_lm_studio(root: Path, cancel: Cancel | None = None) -> Survey:
    """Under its models folder: <owner>/<repository>/<file>. Raises `Cancelled`."""
    walk = Walk(root, cancel, depth=4)
    found = []
    for folder, files in walk:
        name = "/".join(folder.relative_to(root).parts[:2])
        found += models_in(folder, files, "lmstudio", name)
    return Survey(tuple(found), walk.sentence)


def in_llama_cache(root: Path, cancel: Cancel | None = None) -> Survey:
    """llama.cpp's own cache, <owner>_<repository>_<file>, whose manifests tell where the owner's name ends.

    Raises `Cancelled`.
    """
    walk = Walk(root, cancel, depth=0)
    found: list[Found] = []
    for folder, files in walk:
        repositories = sorted({id for file in files if (id := _manifest_of(file.name))}, key=len, reverse=True)
        found += [_named(model, repositories) for model in models_in(folder, files, "llamacpp", "")]
    return Survey(tuple(found))  # it has no folders that could matter


def in_folder(root: Path, cancel: Cancel | None = None, *, depth: int = DEPTH, most: int = MOST) -> Survey:
    """Any folder, and those in it, at most `depth` deep and `most` files in all. Raises `Cancelled`."""
    walk = Walk(root, cancel, depth, most)
    found = []
    for folder, files in walk:
        name = "" if folder == root else folder.relative_to(root).as_posix()
        found += models_in(folder, files, "folder", name)
    return Survey(tuple(found), walk.sentence)


def at_path(path: Path, cancel: Cancel | None = None) -> Found:
    """The model that a person means by a file or a folder: all parts of a split one, a checkpoint by any file of it.

    Raises ModelFileError for what is no model, and for a folder with several; `Cancelled`.
    """
    path = path.absolute()
    if is_folder(path):
        return _only(path, in_folder(path, cancel))
    if path.suffix.lower() in UNSAFE:
        raise ModelFileError(
            f"{path.name} is in PyTorch's own format, which can run code when it is read: it is not imported. Look for "
            "the model as GGUF or safetensors."
        )
    around = [model for _, files in Walk(path.parent, cancel, depth=0) for model in _beside(path, files)]
    for model in around:
        if any(path == file.path for file in model.files):
            return model
    if is_tower(path.name):
        raise tower_alone(path)
    index = open_index(path)  # which raises for all that is no model
    files = tuple(FoundFile(part.name, part, part.stat().st_size) for part in index.paths)
    if len(files) == 1 and not path.suffix:  # such as a blob, which is named by its hash
        files = (replace(files[0], name=f"{path.name}.gguf"),)
    return Found(stem(files[0].name), "folder", files, path)


def _beside(path: Path, files: list[FoundFile]) -> list[Found]:
    return models_in(path.parent, files, "folder", "")


def _only(folder: Path, survey: Survey) -> Found:
    found = survey.found
    if len(found) == 1:
        return replace(found[0], name=found[0].name if found[0].opens == folder else stem(found[0].weights.name))
    if not found:
        open_index(folder)  # which raises
        raise ModelFileError(f"There is no model in {folder}. Choose another folder, or a file.")
    names = ", ".join(model.name for model in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    raise ModelFileError(f"{folder} holds {len(found)} models: {names}{more}. Choose one of them.")


def _manifest_of(name: str) -> str:
    """The repository of a file `manifest=<owner>=<repository>=<tag>.json`; "" for any other file."""
    parts = name.split("=")
    return f"{parts[1]}/{parts[2]}" if len(parts) == 4 and parts[0] == "manifest" and parts[1] and parts[2] else ""


def _named(model: Found, repositories: Iterable[str]) -> Found:
    """The same under its repository's name, its files without that in theirs."""
    for id in repositories:
        prefix = f"{id.replace('/', '_')}_"
        if model.weights.name.startswith(prefix):

            def short(file: FoundFile, prefix: str = prefix) -> FoundFile:
                return replace(file, name=file.name.removeprefix(prefix))

            files = tuple(map(short, model.files))
            return replace(
                model,
                name=f"{id}/{stem(files[0].name)}",
                files=files,
                towers=tuple(map(short, (tower for tower in model.towers if tower.name.startswith(prefix)))),
            )
    return model
