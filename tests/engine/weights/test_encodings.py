"""Every encoding against the `gguf` package, which follows ggml's own C code."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import quants

from engine import weights
from engine.errors import UnsupportedModelError
from engine.weights import grids
from engine.weights.encoding import PackedEncoding
from engine.weights.ggml import TYPE_NAMES

FLOATS = ["F32", "F16", "BF16"]
PACKED = sorted(set(weights.ENCODINGS) - set(FLOATS))
NARROW = ("Q2_K", "Q3_K", "Q6_K", "IQ1_M", "IQ2_XS", "IQ2_S", "NVFP4")
"""Encodings with a scale for each 16 weights."""

HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "IQ1_S": [0],
    "IQ1_M": [54],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "Q1_0": [0],
    "MXFP4": [],
    "NVFP4": [],
}
"""Where a block's float16 scales lie; that of IQ1_M has only its upper four bits there."""

SPECIAL_HALVES = [
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x03FF,
    0x0400,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E00,
    0x7C01,
    0x3C00,
]
"""Zeros, subnormals, the least normal number, the largest, infinities, NaNs quiet and signalling, one."""

ONE, FOUR, EIGHT = (0x00, 0x3C), (0x00, 0x44), (0x00, 0x48)
UNIT_SCALES = {
    "Q4_0": {0: ONE},
    "Q4_1": {0: ONE, 2: (0, 0)},
    "Q5_0": {0: ONE},
    "Q5_1": {0: ONE, 2: (0, 0)},
    "Q8_0": {0: ONE},
    "Q2_K": {0: (0x01,) * 16, 80: ONE, 82: (0, 0)},
    "Q3_K": {96: (0x11,) * 8 + (0xAA,) * 4, 108: ONE},
    "Q4_K": {0: ONE, 2: (0, 0), 4: (1,) * 4 + (0,) * 4 + (1,) * 4},
    "Q5_K": {0: ONE, 2: (0, 0), 4: (1,) * 4 + (0,) * 4 + (1,) * 4},
    "Q6_K": {192: (1,) * 16, 208: ONE},
    "IQ4_NL": {0: ONE},
    "IQ4_XS": {0: ONE, 2: (0xAA,) * 2 + (0x11,) * 4},
    "TQ1_0": {52: ONE},
    "TQ2_0": {64: ONE},
    "IQ1_S": {0: EIGHT},
    "IQ1_M": {48: (0, 0, 0, 0, 0, 0x80, 0, 0x40)},
    "IQ2_XXS": {0: EIGHT},
    "IQ2_XS": {0: EIGHT, 66: (0,) * 8},
    "IQ2_S": {0: EIGHT, 74: (0,) * 8},
    "IQ3_XXS": {0: FOUR},
    "IQ3_S": {0: ONE, 106: (0,) * 4},
    "MXFP4": {0: (128,)},
    "NVFP4": {0: (0x40,) * 4},
    "Q1_0": {0: ONE},
}
"""Bytes of a block whose scales are all one and whose minima are zero, so that its weights are its codes."""

KEPT_BITS = {
    "IQ1_S": {35 + 2 * i: 0x8F for i in range(8)},
    "IQ2_XXS": {9 + 8 * i: 0x0F for i in range(8)},
    "IQ3_XXS": {69 + 4 * i: 0x0F for i in range(8)},
}
"""Bytes of a block that hold sub-scales beside other things, and the bits of the others; without the rest, n is 0."""


def oracle(name: str, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        if name == "Q1_0":
            return one_bit(rows)
        return np.asarray(quants.dequantize(rows, gguf.GGMLQuantizationType[name]), np.float32)


def one_bit(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """d where a bit is set, else -d: `dequantize_row_q1_0` of ggml-quants.c, which the `gguf` package does not have."""
    blocks = rows.reshape(-1, 18)
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return np.where(bits, d, -d).reshape(len(rows), -1)


def random_rows(name: str, n_rows: int, n_blocks: int, seed: int = 1) -> npt.NDArray[np.uint8]:
    shape = (n_rows, n_blocks * weights.get(name).block_bytes)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def as_blocks(name: str, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return rows.reshape(-1, weights.get(name).block_bytes)


def finite_rows(name: str) -> npt.NDArray[np.uint8]:
    """Random blocks whose weights are finite, with subnormal scales among them."""
    rows = random_rows(name, 5, 6)
    if name == "MXFP4":
        as_blocks(name, rows)[:, 0] = np.minimum(as_blocks(name, rows)[:, 0], 251)
    for at in HALVES[name]:
        as_blocks(name, rows)[:, at + 1] &= 0b1011_1111
    return rows


def packed(name: str) -> PackedEncoding:
    encoding = weights.get(name)
    assert weights.is_packed(encoding)
    return encoding


def assert_same_bits(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> None:
    """Equal bits, where any NaN is as good as another: its sign and payload depend on the processor."""
    assert ours.dtype == theirs.dtype == np.float32
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], theirs.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", weights.ENCODINGS)
def test_random_bytes_decode_to_the_oracles_bits(name: str) -> None:
    rows = random_rows(name, 64, 8)
    assert_same_bits(weights.get(name).decode(rows), oracle(name, rows))


@pytest.mark.parametrize("name", [name for name in PACKED if HALVES[name]])
def test_extreme_scales_decode_to_the_oracles_bits(name: str) -> None:
    n = len(SPECIAL_HALVES)
    rows = random_rows(name, n, n)
    blocks = as_blocks(name, rows).reshape(n, n, -1)
    patterns = np.array(SPECIAL_HALVES, "<u2").view(np.uint8).reshape(n, 2)
    for at, pattern in zip(HALVES[name], (patterns[:, np.newaxis], patterns[np.newaxis]), strict=False):
        blocks[:, :, at : at + 2] = pattern
    if name == "IQ1_M":
        for word in range(4):
            upper = np.array(SPECIAL_HALVES) >> 4 * word << 4 & 0xF0
            blocks[:, :, 49 + 2 * word] = blocks[:, :, 49 + 2 * word] & 0x0F | upper[:, np.newaxis]
    assert_same_bits(weights.get(name).decode(rows), oracle(name, rows))


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_every_eight_bit_scale_decodes_to_the_oracles_bits(name: str) -> None:
    rows = random_rows(name, 256, 2)
    as_blocks(name, rows).reshape(256, 2, -1)[:, :, 0] = np.arange(256)[:, np.newaxis]
    assert_same_bits(weights.get(name).decode(rows), oracle(name, rows))


@pytest.mark.parametrize(
    ("grid", "theirs"),
    [
        (grids.IQ1, quants.IQ1_S),
        (grids.IQ2_XXS, quants.IQ2_XXS),
        (grids.IQ2_XS, quants.IQ2_XS),
        (grids.IQ2_S, quants.IQ2_S),
        (grids.IQ3_XXS, quants.IQ3_XXS),
        (grids.IQ3_S, quants.IQ3_S),
    ],
)
def test_codebooks_are_the_oracles(grid: grids.Points, theirs: type[quants.IQ1_S]) -> None:
    theirs.init_grid()
    np.testing.assert_array_equal(grid, theirs.grid[0, 0])


def test_the_eighth_sign_is_the_oracles() -> None:
    np.testing.assert_array_equal(
        grids.even_signs(np.arange(128, dtype=np.uint16)), np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)
    )


@pytest.mark.parametrize("name", ["F32", "BF16"])
def test_wide_floats_keep_every_bit_of_a_nan(name: str) -> None:
    patterns = np.array([0x7F800001, 0xFF800001, 0x7FC00001, 0xFFFFFFFF, 0x7F810000, 0xFFC50000], "<u4")
    rows = patterns.view(np.uint8) if name == "F32" else (patterns >> 16).astype("<u2").view(np.uint8)
    expected = patterns if name == "F32" else patterns & np.uint32(0xFFFF0000)
    decoded = weights.get(name).decode(rows[np.newaxis])
    np.testing.assert_array_equal(decoded.view(np.uint32), expected[np.newaxis])


@pytest.mark.parametrize("name", weights.ENCODINGS)
def test_a_decoded_row_does_not_depend_on_its_neighbours(name: str) -> None:
    rows = random_rows(name, 9, 4)
    encoding = weights.get(name)
    whole = encoding.decode(rows)
    assert_same_bits(encoding.decode(rows[::3]), whole[::3])
    assert_same_bits(encoding.decode(rows[4:5]), whole[4:5])
    assert encoding.decode(rows[:0]).shape == (0, whole.shape[1])


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K"])
def test_matrices_larger_than_a_slab_decode_whole(name: str) -> None:
    encoding = weights.get(name)
    rows = random_rows(name, 700, 512 // encoding.block)
    assert_same_bits(encoding.decode(rows), oracle(name, rows))


@pytest.mark.parametrize("name", weights.ENCODINGS)
def test_decoded_weights_outlive_the_bytes(name: str) -> None:
    rows = random_rows(name, 2, 2)
    decoded = weights.get(name).decode(rows)
    before = decoded.tobytes()
    rows[:] = 0
    assert decoded.tobytes() == before


@pytest.mark.parametrize("name", PACKED)
def test_units_hold_the_codes_in_the_order_of_the_weights(name: str) -> None:
    rows = random_rows(name, 6, 4)
    for at, values in UNIT_SCALES[name].items():
        as_blocks(name, rows)[:, at : at + len(values)] = values
    for at, kept in KEPT_BITS.get(name, {}).items():
        as_blocks(name, rows)[:, at] &= kept
    units = packed(name).units(rows)
    n_rows, n_units, width = units.codes.shape
    assert units.codes.dtype == np.int16
    assert width == (16 if name in NARROW else 32)
    np.testing.assert_array_equal(units.codes.reshape(n_rows, n_units * width), oracle(name, rows))
    scale = units.d if units.sc is None else units.d * units.sc
    np.testing.assert_array_equal(scale, np.ones((n_rows, n_units), np.float32))


@pytest.mark.parametrize("name", PACKED)
def test_units_add_up_to_the_weights(name: str) -> None:
    rows = finite_rows(name)
    units = packed(name).units(rows)
    n_rows, n_units, width = units.codes.shape
    for scale in (units.d, units.sc, units.dmin, units.m):
        assert scale is None or (scale.shape, scale.dtype) == ((n_rows, n_units), np.float32)
    product = units.d.astype(np.float64)[..., np.newaxis] * units.codes
    if units.sc is not None:
        product *= units.sc[..., np.newaxis]
    minimum = np.zeros((n_rows, n_units, 1))
    if units.dmin is not None:
        minimum += units.dmin[..., np.newaxis]
        if units.m is not None:
            minimum *= units.m[..., np.newaxis]
    expected = oracle(name, rows).reshape(n_rows, n_units, width)
    rounding = 2.0**-22 * (np.abs(product) + np.abs(minimum)) + 2.0**-149
    error = np.abs(product + minimum - expected)
    assert np.all(error <= rounding), f"off by up to {np.max(error / rounding)} times what rounding allows"


@pytest.mark.parametrize("name", PACKED)
def test_the_codes_of_a_unit_cannot_overflow_its_dot_product(name: str) -> None:
    codes = packed(name).units(random_rows(name, 64, 8)).codes.astype(np.int64)
    assert np.abs(codes).max() * 32 * 32512 < 2**31


@pytest.mark.parametrize("name", PACKED)
def test_rows_that_are_no_whole_number_of_blocks_are_refused(name: str) -> None:
    encoding = packed(name)
    with pytest.raises(ValueError, match="whole number"):
        encoding.units(np.zeros((encoding.block_bytes, encoding.block_bytes + 1), np.uint8))


def test_type_numbers_and_geometry_are_ggmls() -> None:
    for kind, (block, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        assert TYPE_NAMES[int(kind)] == kind.name
        if kind.name in weights.ENCODINGS:
            encoding = weights.by_ggml_type(int(kind))
            assert (encoding.name, encoding.block, encoding.block_bytes) == (kind.name, block, block_bytes)


@pytest.mark.parametrize("name", ["Q8_K", "Q8_1", "I8", "F64"])
def test_an_encoding_without_a_decoder_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"\b{name}\b.*\bQ4_1\b"):
        weights.by_ggml_type(int(gguf.GGMLQuantizationType[name]))


def test_an_encoding_newer_than_the_gguf_package_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"\bQ2_0\b.*\bQ4_1\b"):
        weights.by_ggml_type(42)


@pytest.mark.parametrize("number", [4, 5, 36, 43, 99, 2**32 - 1])
def test_an_unknown_type_is_refused_by_number(number: int) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"\b{number}\b.*\bQ4_1\b"):
        weights.by_ggml_type(number)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError) as refusal:
        weights.get("Q9_Z")
    assert all(name in str(refusal.value) for name in ["Q9_Z", *weights.ENCODINGS])
