"""Where other programs keep their models on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.cancel import Cancel
from registry.saved import read_json
from registry.sources import hub_environment
from registry.stores.folders import in_llama_cache, in_lm_studio
from registry.stores.found import Found, Survey
from registry.stores.hub_cache import in_hub_cache
from registry.stores.ollama import in_ollama


@dataclass(frozen=True)
class Roots:
    """Folders that need not exist."""

    hub: tuple[Path, ...] = ()
    lm_studio: tuple[Path, ...] = ()
    ollama: tuple[Path, ...] = ()
    llama_cpp: tuple[Path, ...] = ()

    @classmethod
    def default(cls) -> Roots:
        """Those of the environment, and where each program puts them by itself."""
        home = Path.home()
        llama = _llama_cache(home)
        return cls(
            hub=(hub_environment.cache(), llama),  # where newer versions of llama.cpp keep theirs in the same way
            lm_studio=(*_lm_studio_setting(home), home / ".lmstudio/models", home / ".cache/lm-studio/models"),
            ollama=(
                *_from_environment("OLLAMA_MODELS"),
                home / ".ollama/models",
                *([Path("/usr/share/ollama/.ollama/models")] if sys.platform == "linux" else ()),
            ),
            llama_cpp=(llama,),
        )


def survey(roots: Roots, cancel: Cancel | None = None) -> Survey:
    """The models of all stores, each once, by store and name. Only what the names tell: ask `found.checked` of each
    that is shown. Raises `Cancelled`."""
    found: dict[tuple[str, ...], Found] = {}
    sentences = []
    stores: tuple[tuple[Iterable[Path], Callable[[Path, Cancel | None], Survey]], ...] = (
        (roots.hub, in_hub_cache),
        (roots.lm_studio, in_lm_studio),
        (roots.ollama, in_ollama),
        (roots.llama_cpp, in_llama_cache),
    )
    for folders, look in stores:
        for folder in dict.fromkeys(folders):
            part = look(folder, cancel)
            sentences.append(part.sentence)
            for model in part.found:
                # By its name, too: two tags of Ollama's may be one file.
                key = (model.name, *(os.path.realpath(file.path) for file in model.files))
                found.setdefault(key, model)
    return Survey(tuple(found.values()), next(filter(None, sentences), ""))


def _llama_cache(home: Path) -> Path:
    """`fs_get_cache_directory` of llama.cpp."""
    if named := _from_environment("LLAMA_CACHE"):
        return named[0]
    if sys.platform == "darwin":
        return home / "Library/Caches/llama.cpp"
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    base = Path(os.environ.get(variable) or home / ".cache")
    return base / "llama.cpp"


def _lm_studio_setting(home: Path) -> tuple[Path, ...]:
    """The folder that a person chose in LM Studio."""
    try:
        return (Path(read_json(home / ".lmstudio/settings.json").text("downloadsFolder")),)
    except (OSError, ValueError):
        return ()


def _from_environment(name: str) -> tuple[Path, ...]:
    value = os.environ.get(name)
    return (Path(value).expanduser(),) if value else ()
