"""Compiles the native kernels into each wheel, and names the wheel for the platform that they run on."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

NATIVE = Path("engine", "kernels", "native")


class NativeKernels(BuildHookInterface[Any]):
    """Runs for ordinary and for editable wheels alike: an editable one finds its libraries in the source tree."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        native = Path(self.root) / NATIVE
        # pip builds every wheel twice, the first time for its metadata; the kernels are compiled once.
        stamp = native / "lib" / "built-from"
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != self._digest(native):
            _load(native / "build.py").build(native / "lib", log=self.app.display_info)
            stamp.write_text(self._digest(native), encoding="utf-8")
        # `manylinux` is a promise about the C library that only an audit of the built libraries can give.
        platform = next(tag for tag in platform_tags() if "manylinux" not in tag and "musllinux" not in tag)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def _digest(self, native: Path) -> str:
        """Of the libraries that are there, and of all that they are made from: pyproject.toml names the compiler."""
        sources = [Path(self.root, "pyproject.toml"), native / "build.py", *native.glob("*.[ch]")]
        digest = hashlib.sha256()
        for path in sorted([*sources, *native.glob("lib/millstream-*")]):
            digest.update(f"{path.name} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


def _load(path: Path) -> Any:
    """The module at `path`: importing it by name would import the engine, which needs numpy."""
    spec = importlib.util.spec_from_file_location("native_build", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
