"""What a repository offers: each quantisation, with all its parts and its vision tower, is one item to fetch.

Files are grouped by what makes them one model: a split is known by the numbers in its parts' names, as llama.cpp and
Transformers write them, and a checkpoint by the names that `engine.formats` opens. Only data formats are offered:
GGUF, safetensors, and JSON and text beside them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.errors import DownloadError
from engine.formats.checkpoint import INDEX, SINGLE
from engine.vision.projector import likeliest
from registry.paths import safe_path
from registry.sources.source import RemoteFile, Repository

GGUF: Final = "gguf"
CHECKPOINT: Final = "checkpoint"
CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
BESIDE: Final = (
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
)
"""What the engine reads of a checkpoint beside its weights, config.json and tokenizer.json, where it is there."""

_PART: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(gguf|safetensors)", re.I | re.S)
_CUT: Final = re.compile(r"(.+)\.gguf[-._]?(?:part|split)[-._]?\w+", re.I | re.S)
"""Pieces of a file that was cut anywhere, which are no GGUF files by themselves."""
_ENCODING: Final = re.compile(
    r"(?<![A-Z0-9])(?:UD-)?(?:IQ[1-4]_(?:XXS|XS|S|M|NL|XL)|I?Q[1-8](?:_(?:[01K]|XXS|XS|S|M|L|XL|XXL))*|TQ[12]_0|"
    r"I2_S|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32|FP32)(?![A-Z0-9])",
    re.I,
)
_NO_MODEL: Final = re.compile(r"(?:.*[-_.])?imatrix[-_.].*|ggml-vocab-.*", re.I | re.S)
"""GGUF files that hold no model: statistics for quantising, and vocabularies."""


@dataclass(frozen=True)
class Offer:
    """One item to fetch. `files` are all that it needs, weights first and in the order of their parts.

    `name` is the encoding, as the file's name tells it ("Q4_K_M"), or the file's name where that is not enough to tell
    it from the others; `kind` is GGUF or CHECKPOINT. `towers` are the vision towers to choose from, the one in `files`
    first. `problem` says in a sentence why the item cannot be loaded; "" for one that can.
    """

    name: str
    kind: str
    files: tuple[RemoteFile, ...]
    towers: tuple[RemoteFile, ...] = ()
    problem: str = ""

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files)

    @property
    def weights(self) -> tuple[RemoteFile, ...]:
        """Without the tower."""
        return tuple(file for file in self.files if file not in self.towers)

    def with_tower(self, tower: RemoteFile | None) -> Offer:
        """The same with another of its `towers`, which comes first then, or for text alone."""
        others = tuple(each for each in self.towers if each != tower)
        chosen = (tower,) if tower is not None else ()
        return replace(self, files=self.weights + chosen, towers=chosen + others)


def offers(repository: Repository) -> tuple[Offer, ...]:
    """The items of a repository: GGUF files from the smallest to the largest, then the checkpoint.

    Vision towers are preferred as `engine.vision.projector` prefers them when a model is opened: F16 before BF16, which
    some processors are slow at, before Q8_0, before F32, which is twice the size for no more than was trained. Partners
    that draft tokens are the catalogue's matter.
    """
    ggufs = [file for file in repository.files if _is_model(file.name)]
    towers = [file for file in repository.files if _is_tower(file.name) and not _fault((file,))]
    groups: dict[tuple[str, int], list[RemoteFile]] = {}
    for file in ggufs:
        stem, _, count = _part(file)
        groups.setdefault((stem, count), []).append(file)
    found = [_gguf(stem, count, files, towers) for (stem, count), files in groups.items()]
    found += _cut(repository.files)
    found = sorted(_distinct(found), key=lambda offer: (offer.nbytes, offer.name))
    return (*found, *_checkpoint(repository.files))


def _is_tower(name: str) -> bool:
    return "mmproj" in name.lower() and name.lower().endswith(".gguf")


def _is_model(name: str) -> bool:
    return name.lower().endswith(".gguf") and not _is_tower(name) and _NO_MODEL.fullmatch(name) is None


def _part(file: RemoteFile) -> tuple[str, int, int]:
    """The path without number and suffix, which part it is, and of how many; 1 of 1 for a whole file."""
    match = _PART.fullmatch(file.path)
    return (match[1], int(match[2]), int(match[3])) if match else (file.path.rpartition(".")[0], 1, 1)


def _gguf(stem: str, count: int, files: Sequence[RemoteFile], towers: Sequence[RemoteFile]) -> Offer:
    parts = tuple(sorted(files, key=lambda file: (_part(file)[1], file.path)))
    numbers = [_part(file)[1] for file in parts]
    problem = _fault(parts) or _incomplete(stem, numbers, count)
    model = stem.rpartition("/")[2]
    ranks = {name: rank for rank, name in enumerate(likeliest(model, {tower.name for tower in towers}))}
    choices = tuple(sorted(towers, key=lambda tower: (ranks[tower.name], tower.path)))
    return Offer(encoding(stem) or model, GGUF, parts + choices[:1], choices, problem)


def encoding(stem: str) -> str:
    """The encoding that a path names, in its last part before its folder; "" where it names none."""
    for part in reversed(stem.split("/")):
        if named := list(_ENCODING.finditer(part)):
            return named[-1][0].upper()
    return ""


def _incomplete(stem: str, numbers: Sequence[int], count: int) -> str:
    name = stem.rpartition("/")[2]
    if len(set(numbers)) != len(numbers) or not all(1 <= number <= count for number in numbers):
        return f"The parts of {name} are numbered in a way that fits no model of {count} files: it cannot be loaded."
    if len(numbers) == count:
        return ""
    have = set(numbers)
    first = next(number for number in range(1, count + 1) if number not in have)
    return (
        f"The repository has only {len(have)} of the {count} parts of {name}: it cannot be loaded. Part {first} is "
        "missing."
    )


def _cut(files: Iterable[RemoteFile]) -> list[Offer]:
    groups: dict[str, list[RemoteFile]] = {}
    for file in files:
        if match := _CUT.fullmatch(file.path):
            groups.setdefault(match[1], []).append(file)
    why = "It was cut into pieces that have to be joined by hand: it cannot be loaded. Choose another file."
    return [
        Offer(
            encoding(stem) or stem.rpartition("/")[2], GGUF, tuple(sorted(found, key=lambda file: file.path)), (), why
        )
        for stem, found in groups.items()
    ]


def _distinct(found: Sequence[Offer]) -> list[Offer]:
    """The offers, those that share a name renamed to their files' names, or paths where these are the same, too."""
    for label in (_file_name, _file_path):
        times = Counter(offer.name for offer in found)
        found = [replace(offer, name=label(offer)) if times[offer.name] > 1 else offer for offer in found]
    return list(found)


def _file_name(offer: Offer) -> str:
    return _file_path(offer).rpartition("/")[2]


def _file_path(offer: Offer) -> str:
    path = offer.files[0].path
    match = _PART.fullmatch(path) or _CUT.fullmatch(path)
    return match[1] if match else path.rpartition(".")[0]


def _checkpoint(files: Sequence[RemoteFile]) -> list[Offer]:
    """The checkpoint in the repository's own folder, if there is one. As `engine.formats.checkpoint` opens it: one file
    of weights before several."""
    at = {file.path: file for file in files if "/" not in file.path}
    shards = [file for file in at.values() if (match := _PART.fullmatch(file.path)) and match[4] == "safetensors"]
    shards = [file for file in shards if _part(file)[0] == "model"]
    unsafe = [file for file in at.values() if file.path.endswith((".bin", ".pt", ".pth", ".pickle", ".ckpt"))]
    problem = ""
    weights: tuple[RemoteFile, ...]
    if SINGLE in at:
        weights = (at[SINGLE],)
    elif shards:
        count = max(_part(file)[2] for file in shards)
        weights = tuple(sorted((file for file in shards if _part(file)[2] == count), key=lambda file: file.path))
        problem = _incomplete("model", [_part(file)[1] for file in weights], count)
        if INDEX in at:
            weights = (*weights, at[INDEX])
        else:
            problem = problem or f"The list of its files, {INDEX}, is missing in the repository: it cannot be loaded."
    elif unsafe and CONFIG in at:
        why = (
            "Its weights are only there in PyTorch's own format, which can run code when it is read: it is not loaded "
            "here. Look for the model as GGUF or safetensors."
        )
        return [Offer("PyTorch", CHECKPOINT, tuple(unsafe), (), why)]
    else:
        return []
    for needed in (CONFIG, TOKENIZER):
        if needed not in at:
            problem = problem or f"{needed} is missing in the repository: the weights cannot be loaded without it."
    beside = tuple(at[name] for name in (CONFIG, TOKENIZER, *BESIDE) if name in at)
    return [Offer("safetensors", CHECKPOINT, weights + beside, (), _fault(weights + beside) or problem)]


def _fault(files: Sequence[RemoteFile]) -> str:
    """Why these cannot lie beside each other in a folder, as a sentence; "" where they can."""
    seen: dict[str, str] = {}
    for file in files:
        try:
            safe_path(file.path)
        except DownloadError as error:
            return str(error)
        if file.nbytes == 0:
            return f"{file.path} is empty in the repository: it cannot be loaded."
        if (other := seen.setdefault(file.path.casefold(), file.path)) != file.path:
            return f"{other} and {file.path} are the same name on some systems: neither is fetched."
    return ""
