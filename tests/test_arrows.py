"""The arrows between the packages, read off every import statement, and what the CPU path may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "engine", "registry", "resources", "installer")
ARROWS = {
    "app": {"engine", "registry", "resources"},
    "engine": set(),
    "registry": {"engine", "resources"},
    "resources": set(),
    "installer": set(),
}
# What describes a file, its errors and its memory needs, and how work on it is stopped.
OPEN_TO_REGISTRY = (
    *("engine.cancel", "engine.errors", "engine.formats", "engine.interrupts", "engine.types", "engine.units"),
    # What tells whether a model can be loaded, and which vision tower is its own.
    *("engine.info", "engine.vision.eyes", "engine.vision.projector"),
    # What the hardware probe asks: the same questions as a plan does.
    *("engine.cgroups", "engine.cores", "engine.kernels.native.library"),
    *("engine.memory.figures", "engine.memory.machine"),
    # What a choice of models and its fit reckon with: the rules of a plan, and how many bits an encoding has.
    *("engine.checks", "engine.memory.forecast", "engine.memory.needs", "engine.planning", "engine.weights"),
)
TENSOR_LIBRARIES = {"numpy", "torch", "triton", "safetensors"}
ACCURACY_REFERENCE = ("engine/kernels/reference.py", "engine/kernels/reference_recurrent.py")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path, at_top: bool = False) -> Iterator[str]:
    """Every module that the file names, `at_top` only those that importing it loads."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _loaded(tree) if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(path.relative_to(ROOT).parent.parts)
            prefix = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *filter(None, [node.module])])
            # `from engine import errors` may name a module or a name in one: both spellings are yielded.
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _loaded(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run on import: not the bodies of functions, nor what is for the type checker only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _loaded(child)


def top(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_along_the_arrows(package: str) -> None:
    others = set(PACKAGES) - ARROWS[package] - {package}
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(package)
        for module in imports(path)
        if top(module) in others or top(module) == "tests"
    }
    assert sources(package)
    assert not wrong


def test_registry_takes_from_engine_only_what_describes_files() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("registry")
        for module in imports(path)
        if top(module) == "engine" and not f"{module}.".startswith(tuple(f"{name}." for name in OPEN_TO_REGISTRY))
    }
    assert not wrong


def test_installer_imports_the_standard_library_alone() -> None:
    allowed = sys.stdlib_module_names | {"installer"}
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("installer")
        for module in imports(path)
        if top(module) not in allowed
    }
    assert not wrong


@pytest.mark.parametrize("package", ["engine", "registry", "resources", "installer"])
def test_only_the_app_knows_qt(package: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(package)
        for module in imports(path)
        if top(module) in {"PySide6", "shiboken6"}
    }
    assert not wrong


def test_the_app_handles_no_tensors() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("app")
        for module in imports(path)
        if top(module) in TENSOR_LIBRARIES
    }
    assert not wrong


def test_torch_is_imported_by_the_accuracy_reference_alone_or_inside_a_function() -> None:
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("engine")
        if path.relative_to(ROOT).as_posix() not in ACCURACY_REFERENCE
        for module in imports(path, at_top=True)
        if top(module) in {"torch", "triton"} or module.startswith("engine.kernels.reference")
    }
    assert not wrong


def test_a_reply_on_the_cpu_loads_no_torch(starter: Path) -> None:
    script = """
import sys
from engine import Budgets, Engine, Message, Settings
with Engine.load(sys.argv[1], Budgets(context=128)) as engine:
    last = list(engine.chat([Message("user", "Hello")], Settings(max_tokens=2, temperature=0)))[-1]
assert last.usage.completion_tokens == 2, last
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(starter)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_a_broken_arrow_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk itself: relative imports, imports in functions, and names taken out of a package."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "registry" / "sources" / "bad.py"
    path.parent.mkdir(parents=True)
    path.write_text("from ..hub import x\ndef f():\n    import app.cli\n    from engine import memory\n")
    assert set(imports(path)) == {"registry.hub", "registry.hub.x", "app.cli", "engine", "engine.memory"}
    assert set(imports(path, at_top=True)) == {"registry.hub", "registry.hub.x"}
