"""The native kernels on Arm: golden vectors through the C interface, built for aarch64 and run under an emulator."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import weights
from engine.kernels.native import NativeOps
from engine.kernels.native.build import SOURCES
from engine.kernels.native.ops import CACHE_NUMBERS
from tests.engine.kernels.cases import ATTENTION, Arrays, golden
from tests.engine.kernels.test_native import CAUSAL, FUNCTIONS
from tests.engine.kernels.test_token import BLOCK, TERNARY, packed

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[3] / "engine" / "kernels" / "native"
FUNCTION, QUANTISE, LINEAR, RMS_NORM, ROTARY, ATTEND, TOKEN = range(7)
BUILDS = {
    "here, portable": ("native", "baseline"),
    "aarch64, portable": ("aarch64-linux-musl", "generic"),
    "aarch64, neon": ("aarch64-linux-musl", "generic+dotprod"),
}


def records() -> Iterator[tuple[str, int, list[int], list[float], list[np.ndarray]]]:
    """Name, kind, integers, floats and arrays of every case that the C interface can run, the expected result last."""
    ops = NativeOps(1)
    encodings = ops._encodings
    ops.close()
    for case, (a, out) in golden().items():
        kind, _, name = case.partition("/")
        if kind == "function" and name in FUNCTIONS:
            yield case, FUNCTION, [FUNCTIONS.index(name), a["x"].size], [], [a["x"], out["out"]]
        elif kind == "quantise":
            yield case, QUANTISE, [*a["x"].shape], [], [a["x"], out["q"], out["s"]]
        elif kind == "linear":
            assert name in encodings and name in weights.ENCODINGS
            sizes = [a["x"].shape[0], a["w"].shape[0], a["x"].shape[1], encodings[name]]
            yield case, LINEAR, sizes, [], [a["x"], a["w"], out["out"]]
        elif kind == "bitnet":
            x, codes = (np.pad(a[name], ((0, 0), (0, BLOCK - a[name].shape[1]))) for name in ("x", "codes"))
            for encoding in TERNARY:
                sizes = [*x.shape[:1], len(codes), BLOCK, encodings[encoding]]
                yield f"{case}/{encoding}", TOKEN, sizes, [], [x, packed(encoding, codes), a["scale"], out["out"]]
        elif kind == "rms_norm":
            yield case, RMS_NORM, [*a["x"].shape], [1e-5], [a["x"], a["w"], out["out"]]
        elif kind == "rotary":
            sizes = [a["x"].shape[0], 4, 16, a["cos"].shape[1], 7, name == "interleaved"]
            yield case, ROTARY, sizes, [], [a["x"], a["cos"], a["sin"], out["out"]]
        elif kind == "attention" and name in CAUSAL:
            yield case, ATTEND, *_attention(name, a, out)


def _attention(name: str, a: Arrays, out: Arrays) -> tuple[list[int], list[float], list[np.ndarray]]:
    c = ATTENTION[name]
    q = np.zeros((c["start"] + c["n"], c["n_heads"], c["key"]), np.float32)
    q[c["start"] :] = a["q"]
    sizes = [c["n"], c["start"], c["n_heads"], c["n_kv"], c["key"], c["value"], CACHE_NUMBERS[c["kind"]]]
    sizes += [c.get("window", 0), c.get("sinks", False)]
    return sizes, [c["key"] ** -0.5, c.get("softcap", 0.0)], [q, a["k"], a["v"], a["sinks"], out["out"]]


def write_cases(path: Path, spoil: bool = False) -> None:
    with path.open("wb") as file:
        for name, kind, ints, floats, arrays in records():
            ints, floats = ints + [0] * (10 - len(ints)), floats + [0.0] * (4 - len(floats))
            file.write(struct.pack("<q10q4f64sq", kind, *map(int, ints), *floats, name.encode(), len(arrays)))
            for index, array in enumerate(arrays):
                data = bytearray(np.ascontiguousarray(array).tobytes())
                if spoil and index == len(arrays) - 1:
                    data[0] ^= 1
                file.write(struct.pack("<q", len(data)) + data)


@pytest.fixture(scope="module", params=BUILDS)
def program(request, tmp_path_factory) -> list[str]:
    """The command that runs the static test program of one build."""
    target, processor = BUILDS[request.param]
    emulator = [] if target == "native" else [shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")]
    if emulator == [None]:
        pytest.skip("qemu-aarch64 is missing: install the package qemu-user to test the Arm kernels")
    folder = tmp_path_factory.mktemp("golden")
    out = folder / "golden_native"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, f"-mcpu={processor}", "-std=c11", "-O2"]
    command += ["-ffp-contract=off", "-fno-math-errno", "-Wno-psabi", f"-I{NATIVE}", str(HERE / "golden_native.c")]
    command += [*(str(NATIVE / source) for source in SOURCES), "-o", str(out), "-lm", "-lpthread"]
    command += [] if target == "native" else ["-static"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return [*emulator, str(out)]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_c_interface_gives_the_frozen_bits(program: list[str], threads: int, tmp_path: Path) -> None:
    write_cases(tmp_path / "cases")
    done = subprocess.run([*program, str(tmp_path / "cases"), str(threads)], capture_output=True, text=True)
    total = len(list(records()))
    assert (done.returncode, done.stdout) == (0, f"{total} of {total} cases agree\n")


def test_one_wrong_bit_is_seen(program: list[str], tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", spoil=True)
    done = subprocess.run([*program, str(tmp_path / "cases"), "1"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.endswith(f"0 of {len(list(records()))} cases agree\n")
