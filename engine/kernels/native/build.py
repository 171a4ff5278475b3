"""Compile the native kernels, one shared library per instruction set, with the C compiler of the `ziglang` package.

Standard library alone, so that the wheel's build can load it by path. By hand, after a change to the C sources:

    python engine/kernels/native/build.py
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SOURCES = (
    "interface.c",
    "pool.c",
    "quantise.c",
    "linear.c",
    "token.c",
    "heads.c",
    "route.c",
    "experts.c",
    "pointwise.c",
    "cache.c",
    "attention.c",
    "embed.c",
    "recurrent.c",
    "replay.c",
    "probe.c",
)
FLAGS = (
    *("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-sanitize=undefined", "-fvisibility=hidden"),
    *("-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-shared"),
    "-falign-loops=64",  # a loop over two cache lines costs five per cent; any other code may push it there
)

INSTRUCTION_SETS = {
    "x86_64": {"portable": "x86_64", "avx2": "x86_64_v3", "avx512": "x86_64_v4+avx512vnni"},
    "aarch64": {"portable": "generic", "neon": "generic+dotprod"},
}
"""By processor family: the library's name and the compiler's name of the processor."""

TARGETS = {
    "linux": ("{cpu}-linux-gnu.2.17", ".so", ("-fPIC", "-lm", "-lpthread")),
    "darwin": ("{cpu}-macos.11.0", ".dylib", ()),
    "win32": ("{cpu}-windows-gnu", ".dll", ()),
}


class BuildError(Exception):
    """The compiler is missing or refused the sources."""


def processor(machine: str) -> str:
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())
    if name not in INSTRUCTION_SETS:
        raise BuildError(
            f"There are no native kernels for the processor {machine!r}; known: {', '.join(INSTRUCTION_SETS)}."
        )
    return name


def build(out: Path, target: str | None = None, log: Callable[[str], None] = print) -> list[Path]:
    """Write `millstream-<instruction set>.<so|dylib|dll>` files into `out` and return their paths.

    `target` is "<system>-<processor>", for example "win32-x86_64"; without it, this machine's. Raises BuildError.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise BuildError("The package ziglang is missing, which brings the C compiler: install it and build again.")
    system, _, machine = (target or f"{sys.platform}-{platform.machine()}").partition("-")
    if system not in TARGETS:
        raise BuildError(f"There are no native kernels for the system {system!r}; known: {', '.join(TARGETS)}.")
    cpu = processor(machine)
    triple, suffix, extra = TARGETS[system]
    here = Path(__file__).resolve().parent
    out.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory(prefix="millstream-build-") as scratch:
        environment = os.environ | {
            "ZIG_GLOBAL_CACHE_DIR": os.path.join(scratch, "global"),
            "ZIG_LOCAL_CACHE_DIR": os.path.join(scratch, "local"),
        }
        for isa, mcpu in INSTRUCTION_SETS[cpu].items():
            library = out / f"millstream-{isa}{suffix}"
            partial = Path(scratch) / library.name
            command = [
                sys.executable,
                "-m",
                "ziglang",
                "cc",
                "-target",
                triple.format(cpu=cpu),
                f"-mcpu={mcpu}",
                *FLAGS,
            ]
            command += [str(here / source) for source in SOURCES] + ["-o", str(partial), *extra]
            log(f"compiling {library.name}")
            result = subprocess.run(command, capture_output=True, text=True, env=environment)
            if result.returncode != 0:
                raise BuildError(f"{library.name} did not compile:\n{result.stderr.strip()}")
            finished = library.with_suffix(suffix + ".new")
            finished.write_bytes(partial.read_bytes())
            finished.replace(library)
            made.append(library)
    return made


if __name__ == "__main__":
    build(Path(__file__).resolve().parent / "lib", sys.argv[1] if len(sys.argv) > 1 else None)
