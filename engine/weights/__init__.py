"""The registry of weight encodings. One joins it by a file of its own and a line in `ENCODINGS`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeGuard

from engine.errors import UnsupportedModelError
from engine.weights.encoding import Encoding, PackedEncoding
from engine.weights.floats import BF16, F16, F32
from engine.weights.fp4 import MXFP4, NVFP4
from engine.weights.ggml import TYPE_NAMES
from engine.weights.iq1 import IQ1_M, IQ1_S
from engine.weights.iq2 import IQ2_S, IQ2_XS, IQ2_XXS
from engine.weights.iq3 import IQ3_S, IQ3_XXS
from engine.weights.iq4 import IQ4_NL, IQ4_XS
from engine.weights.packed import Packed
from engine.weights.q1_0 import Q1_0
from engine.weights.q2_k import Q2_K
from engine.weights.q3_k import Q3_K
from engine.weights.q4 import Q4_0, Q4_1
from engine.weights.q4_k import Q4_K, Q5_K
from engine.weights.q5 import Q5_0, Q5_1
from engine.weights.q6_k import Q6_K
from engine.weights.q8_0 import Q8_0
from engine.weights.tq import TQ1_0, TQ2_0

_ALL: tuple[Encoding, ...] = (
    F32(),
    F16(),
    BF16(),
    Q4_0(),
    Q4_1(),
    Q5_0(),
    Q5_1(),
    Q8_0(),
    Q2_K(),
    Q3_K(),
    Q4_K(),
    Q5_K(),
    Q6_K(),
    IQ4_NL(),
    IQ4_XS(),
    MXFP4(),
    TQ1_0(),
    TQ2_0(),
    IQ1_S(),
    IQ1_M(),
    IQ2_XXS(),
    IQ2_XS(),
    IQ2_S(),
    IQ3_XXS(),
    IQ3_S(),
    NVFP4(),
    Q1_0(),
)

ENCODINGS: Mapping[str, Encoding] = MappingProxyType({encoding.name: encoding for encoding in _ALL})
"""Every encoding that can be read, by name."""


def get(name: str) -> Encoding:
    """The encoding of that name. Raises UnsupportedModelError, which lists the known ones."""
    encoding = ENCODINGS.get(name)
    if encoding is None:
        raise UnsupportedModelError(f"The weight encoding {name} cannot be read. Known are: {', '.join(ENCODINGS)}.")
    return encoding


def by_ggml_type(number: int) -> Encoding:
    """The encoding with that `ggml_type` number. Raises UnsupportedModelError, which names it where it has a name."""
    return get(TYPE_NAMES.get(number, f"of ggml type {number}"))


def is_packed(encoding: Encoding) -> TypeGuard[PackedEncoding]:
    """Whether its linear runs over integer codes, so that it has `units`."""
    return isinstance(encoding, Packed)
