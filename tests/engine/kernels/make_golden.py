#!/usr/bin/env python3
"""Draw and freeze the golden vectors. Only a change of CONTRACT.md is a reason to run this again.

python -m tests.engine.kernels.make_golden
"""

from __future__ import annotations

import numpy as np

from tests.engine.kernels.cases import GOLDEN, draw, run


def main() -> None:
    arrays = {}
    for case, inputs in draw(np.random.default_rng(20261130)):
        for side, values in (("in", inputs), ("out", run(case, inputs))):
            arrays |= {f"{case}:{side}:{name}": value for name, value in values.items()}
    GOLDEN.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN / "contract.npz", **arrays)


if __name__ == "__main__":
    main()
