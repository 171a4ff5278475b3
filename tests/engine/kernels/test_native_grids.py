"""The codebooks in C against those of `engine.weights`, point by point."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from engine.weights import grids

HEADER = Path(__file__).parents[3] / "engine" / "kernels" / "native" / "encodings_grids.h"
TABLES = {
    name: [int(word, 16) for word in re.findall(r"p\((0x[0-9a-f]{4})\)", words)]
    for name, words in re.findall(r"#define (\w+)_POINTS\(p\) \\\n((?:    p.*\n)+)", HEADER.read_text())
}


@pytest.mark.parametrize("name", ["IQ1", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_every_point_of_a_c_table_is_the_codebooks(name: str) -> None:
    grid: grids.Points = getattr(grids, name)
    bits = 16 // grid.shape[1]
    fields = np.array(TABLES[name])[:, np.newaxis] >> np.arange(0, 16, bits) & ((1 << bits) - 1)
    assert fields.shape == grid.shape
    np.testing.assert_array_equal(np.unique(grid)[fields], grid)
