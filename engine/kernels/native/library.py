"""Finding, choosing and loading the native library for this processor."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import Structure, c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

from engine.errors import SettingsError, UnsupportedModelError

INTERFACE = 8
PREFERENCE = (("avx512", 2), ("avx2", 1), ("neon", 4), ("portable", 0))
"""Libraries from the fastest down, each with the bit of `ms_processor` that it asks for."""


class CWeight(Structure):
    """`ms_weight` of millstream.h."""

    _fields_ = (
        ("data", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("row_bytes", c_int64),
        ("encoding", c_int64),
        ("row_scales", c_void_p),
        ("scale", c_float),
        ("first", c_int64),
        ("total", c_int64),
    )


class CStack(Structure):
    """`ms_stack` of millstream.h."""

    _fields_ = (("first", CWeight), ("count", c_int64), ("apart", c_int64), ("scales", c_void_p))


class CCache(Structure):
    """`ms_cache` of millstream.h."""

    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("capacity", c_int64),
        ("n_kv_heads", c_int64),
        ("key_dim", c_int64),
        ("value_dim", c_int64),
        ("kind", c_int64),
    )


class CCall(Structure):
    """`ms_call` of millstream.h."""

    _fields_ = (
        ("function", c_int64),
        ("pointers", c_void_p * 16),
        ("integers", c_int64 * 12),
        ("floats", c_float * 4),
    )


TYPES = {"p": c_void_p, "i": c_int64, "f": c_float}
SIGNATURES = {
    "ms_embed": "ppifp",
    "ms_rms_norm": "ppfiiipp",
    "ms_linear": "piippppppppfi",
    "ms_gated": "piipppi",
    "ms_rotary": "piiiippiip",
    "ms_attention": "ppppiiififppp",
    "ms_layer_norm": "pppfiip",
    "ms_add": "ppip",
    "ms_scale": "pfip",
    "ms_activate": "piip",
    "ms_gate": "ppiiip",
    "ms_splice": "piiipiiiip",
    "ms_round_tokens": "piip",
    "ms_route": "ppiiiiiiiifpp",
    "ms_experts": "pppiiippppppp",
    "ms_head_linears": "pipiiip",
    "ms_convolve": "piipipiip",
    "ms_delta_rule": "ppppppiiiiiiffp",
    "ms_expert_gates": "ppiiiippppip",
    "ms_expert_adds": "pppiiippip",
}
"""Types of the arguments after the pool, by letter: pointer, integer, float. All of these return a status.

In the order of `ms_function_name`.
"""


def folder() -> Path:
    return Path(__file__).resolve().parent / "lib"


def suffix() -> str:
    return {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")


def available() -> list[str]:
    """The instruction sets that were built, the fastest first."""
    return [isa for isa, _ in PREFERENCE if (folder() / f"millstream-{isa}{suffix()}").is_file()]


def _open(isa: str) -> ctypes.CDLL:
    path = folder() / f"millstream-{isa}{suffix()}"
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnsupportedModelError(
            f"The engine's library {path.name} does not load ({error}). Install Millstream again."
        ) from error
    if lib.ms_interface() != INTERFACE:
        raise UnsupportedModelError(
            f"The engine's library {path.name} belongs to another version of Millstream. Install Millstream again."
        )
    return lib


def load(isa: str | None = None) -> tuple[str, ctypes.CDLL]:
    """The library for `isa`, or for MILLSTREAM_ISA, or the fastest that this processor runs: (name, library).

    Raises SettingsError for an instruction set that is unknown, not built or not supported by this processor.
    """
    built = available()
    if not built:
        raise UnsupportedModelError(
            "The engine's native library is missing: install Millstream again, or build it with "
            "`python engine/kernels/native/build.py`."
        )
    wanted = isa or os.environ.get("MILLSTREAM_ISA")
    if wanted and wanted not in built and wanted not in dict(PREFERENCE):
        raise SettingsError(
            f"The instruction set {wanted!r} (MILLSTREAM_ISA) is not known; use one of: {', '.join(built)}."
        )
    lib = _open("portable" if "portable" in built else built[-1])
    has = lib.ms_processor()
    runs = [name for name, bit in PREFERENCE if name in built and (not bit or has & bit)]
    if wanted and wanted not in runs:
        raise SettingsError(f"This processor does not have the instruction set {wanted!r}; it runs: {', '.join(runs)}.")
    name = wanted or runs[0]
    lib = _open(name)
    lib.ms_pool_new.argtypes, lib.ms_pool_new.restype = (c_int,), c_void_p
    lib.ms_pool_free.argtypes, lib.ms_pool_free.restype = (c_void_p,), None
    lib.ms_pool_bytes.argtypes, lib.ms_pool_bytes.restype = (c_void_p,), c_int64
    lib.ms_encoding_name.argtypes, lib.ms_encoding_name.restype = (c_int,), c_char_p
    lib.ms_function.argtypes, lib.ms_function.restype = (c_int, c_void_p, c_int64, c_void_p), None
    lib.ms_quantise.argtypes, lib.ms_quantise.restype = (c_void_p, c_int64, c_int64, c_void_p, c_void_p), None
    lib.ms_read.argtypes, lib.ms_read.restype = (c_void_p, c_void_p, c_int64, c_void_p), c_int
    lib.ms_multiply_adds.argtypes, lib.ms_multiply_adds.restype = (c_void_p, c_int64, c_void_p, c_void_p), c_int
    for function, letters in SIGNATURES.items():
        getattr(lib, function).argtypes = (c_void_p, *(TYPES[letter] for letter in letters))
        getattr(lib, function).restype = c_int
    lib.ms_replay.argtypes, lib.ms_replay.restype = (c_void_p, c_void_p, c_int64, c_void_p, c_int64), c_int
    return name, lib


def encodings(lib: ctypes.CDLL) -> dict[str, int]:
    """The encodings that the library has kernels for, by name."""
    names: dict[str, int] = {}
    while (name := lib.ms_encoding_name(len(names))) is not None:
        names[name.decode()] = len(names)
    return names


def recorded_call(function: str, arguments: Sequence[Any]) -> CCall:
    """The call of one of `SIGNATURES` with these arguments, the pool left out."""
    by_letter: dict[str, list[Any]] = {"p": [], "i": [], "f": []}
    for letter, argument in zip(SIGNATURES[function], arguments, strict=True):
        by_letter[letter].append(argument)
    call = CCall(list(SIGNATURES).index(function))
    for place, letter in ((call.pointers, "p"), (call.integers, "i"), (call.floats, "f")):
        for at, value in enumerate(by_letter[letter]):
            place[at] = value
    return call
