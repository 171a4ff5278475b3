"""The lock files hold what pyproject.toml asks for, by hash, and nothing of the machine that wrote them."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from installer.pytorch import VERSION
from tests.installer.checkout import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# torch is installed by a step of its own, because its builds depend on the graphics card. The bindings of NVIDIA's
# driver are the same for every machine, and need no card.
APART = re.compile(r"torch$|triton$|nvidia-(?!ml-py$)|cuda-")


def read(name: str) -> dict[str, set[str]]:
    """Versions by package; a package may have one for old and one for new Pythons."""
    text = (ROOT / "installer" / name).read_text(encoding="utf-8")
    pins: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE):
        pins.setdefault(canonicalize_name(package), set()).add(version)
    return pins


def asked_for(kind: str) -> list[Requirement]:
    project = PROJECT["project"]
    texts = [*project["dependencies"], *PROJECT["dependency-groups"]["build"]]
    if kind == "test":
        texts += project["optional-dependencies"]["test"]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("kind", ["run", "test"])
def test_every_dependency_is_pinned_within_its_range(kind: str) -> None:
    pins = read(f"{kind}.lock")
    for requirement in asked_for(kind):
        name = canonicalize_name(requirement.name)
        if APART.match(name):
            continue
        assert name in pins, f"{name} is not in {kind}.lock: write the lock again"
        assert all(requirement.specifier.contains(version) for version in pins[name]), name


@pytest.mark.parametrize("kind", ["run", "test"])
def test_torch_and_what_comes_with_a_card_are_left_apart(kind: str) -> None:
    assert [name for name in read(f"{kind}.lock") if APART.match(name)] == []
    assert {"filelock", "sympy", "networkx", "fsspec", "typing-extensions", "setuptools"} <= set(read(f"{kind}.lock"))


def test_the_tests_run_on_the_same_versions_as_the_program() -> None:
    test = read("test.lock")
    assert {name: test.get(name) for name in read("run.lock")} == read("run.lock")


@pytest.mark.parametrize("name", ["run.lock", "test.lock", "pip.lock"])
def test_every_pin_has_its_hashes_and_no_address_is_named(name: str) -> None:
    text = (ROOT / "installer" / name).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", text)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text
    assert "--index-url" not in text and "--find-links" not in text and "file:" not in text


def test_the_build_uses_what_the_lock_pins() -> None:
    """The project is built without isolation, so that the lock holds for the build too."""
    assert set(PROJECT["build-system"]["requires"]) <= set(PROJECT["dependency-groups"]["build"])


def test_the_installer_and_the_project_name_the_same_torch() -> None:
    assert f"torch=={VERSION}" in PROJECT["project"]["dependencies"]
