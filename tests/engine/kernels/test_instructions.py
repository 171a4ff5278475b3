"""What the compiler made of the kernels, read back: the contract's bits come from what is absent, too."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from functools import cache

import pytest

from engine.kernels.native import available, library

NEEDED = {
    "avx512": ("vpdpwssd", "vpdpbusd"),
    "avx2": ("vpmaddwd", "vpmaddubsw"),
    "portable": (),
}
"""The multiply-adds that the kernels of each instruction set are written for."""

BUILT = [isa for isa in available() if isa in NEEDED]


@cache
def instructions(isa: str) -> Counter[tuple[str, bool]]:
    """How often the library has each mnemonic, and whether with the widest registers."""
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("objdump is missing: install the package binutils to look at the kernels' instructions")
    path = library.folder() / f"millstream-{isa}{library.suffix()}"
    listing = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", str(path)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    lines = re.findall(r"^\s+[0-9a-f]+:\s+(?:\{\w+\}\s+)?(\w+)(.*)$", listing, re.MULTILINE)
    assert len(lines) > 10_000
    return Counter((mnemonic, "zmm" in operands) for mnemonic, operands in lines)


@pytest.mark.parametrize("isa", BUILT)
def test_no_product_is_fused_with_a_sum(isa: str) -> None:
    fused = re.compile(r"v?fn?m(add|sub)|vfmaddsub|vfmsubadd")
    assert not [mnemonic for mnemonic, _ in instructions(isa) if fused.match(mnemonic)]


@pytest.mark.parametrize("isa", BUILT)
def test_the_multiply_adds_of_the_instruction_set_are_used(isa: str) -> None:
    for mnemonic in NEEDED[isa]:
        assert instructions(isa)[mnemonic, False] + instructions(isa)[mnemonic, True] > 0, mnemonic


@pytest.mark.skipif("avx512" not in BUILT, reason="no AVX-512 library was built for this processor family")
def test_tiles_use_the_widest_registers_and_other_libraries_do_not_have_them() -> None:
    assert instructions("avx512")["vpdpwssd", True] > 0
    for isa in BUILT:
        assert isa == "avx512" or not any(wide for _, wide in instructions(isa))
