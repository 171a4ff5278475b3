"""A small checkout on which the real installer runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from installer.environment import Environment
from tests.installer.checkout import APP, ROOT, STARTER, write


@pytest.fixture
def checkout(folder: Path) -> Path:
    """The installer with a program that prints its arguments, and a starter that can be had unless `offline` exists."""
    shutil.copytree(ROOT / "installer", folder / "installer", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    write(folder / "app" / "__main__.py", APP)
    write(folder / "registry" / "starter.py", STARTER)
    native = folder / "engine" / "kernels" / "native"
    write(native / "build.py", "def build(out, target=None, log=print): return []\n")
    shutil.copy(ROOT / "engine" / "kernels" / "native" / "wheel.py", native)
    write(native / "linear.c", "int one(void) { return 1; }\n")
    write(native / "lib" / "kernels.so", "")
    return folder


@pytest.fixture
def environment(checkout: Path) -> Environment:
    """Its environment, with the Python and the pip of this one, and no packages. No stamp yet."""
    environment = Environment(checkout)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
    packages = next(environment.folder.glob("lib/python*/site-packages"))
    for path in Path(sysconfig.get_path("purelib")).glob("pip*"):
        if path.name == "pip" or path.name.startswith("pip-"):
            (packages / path.name).symlink_to(path)
    return environment


@pytest.fixture
def ready(environment: Environment) -> Environment:
    environment.remember("test", environment.digest())
    return environment
