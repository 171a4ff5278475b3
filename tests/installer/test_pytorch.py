"""Where torch comes from: the real pip between small wheels on indexes of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from installer import pytorch
from installer.environment import Environment
from installer.pip import Pip
from installer.pytorch import CPU_INDEX, VERSION
from installer.report import NoRoom, Report
from tests.wheels import write_wheel


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`cpu` has a torch that needs nothing; `default`, which pip is set to use, has one that needs CUDA."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    root = tmp_path / "indexes"
    for path in ("cpu/torch", "default/torch", "default/nvidia-cublas"):
        (root / path).mkdir(parents=True)
    write_wheel(root / "cpu" / "torch", "torch", f"{VERSION}+cpu", {"torch/__init__.py": b""})
    needs = ("nvidia-cublas==13.0",)
    write_wheel(root / "default" / "torch", "torch", VERSION, {"torch/__init__.py": b""}, needs)
    write_wheel(root / "default" / "nvidia-cublas", "nvidia-cublas", "13.0", {"nvidia/__init__.py": b""})
    for folder in root.glob("*/*"):
        links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>' for wheel in folder.glob("*.whl"))
        (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    monkeypatch.setenv("PIP_INDEX_URL", (root / "default").as_uri())
    return root


def install(environment: Environment, monkeypatch: pytest.MonkeyPatch, index: str, card: str | None = None) -> None:
    monkeypatch.setenv("MILLSTREAM_TORCH_INDEX", index)
    monkeypatch.setattr(pytorch, "graphics_card", lambda: card)
    monkeypatch.setattr(pytorch, "CUDA_ROOM", 0)
    report = Report(1)
    with environment.locked(report) as lock, environment.scratch():
        pytorch.install(Pip(environment, report, lock), report)


def installed(environment: Environment) -> set[str]:
    return {path.stem for path in environment.folder.glob("lib/python*/site-packages/*.dist-info")}


def test_the_cpu_index_is_tried_first(
    environment: Environment, indexes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(environment, monkeypatch, (indexes / "cpu").as_uri())
    assert f"torch-{VERSION}+cpu" in installed(environment)
    assert "CUDA" not in capsys.readouterr().err
    assert environment.has_package("torch", VERSION)


def test_where_it_cannot_serve_cuda_is_announced_before_it_comes(
    environment: Environment, indexes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(environment, monkeypatch, "http://127.0.0.1:9/simple")
    told = capsys.readouterr().err
    assert f"http://127.0.0.1:9/simple could not serve torch=={VERSION}" in told
    assert told.index("this torch is built for CUDA") < told.index("unpacking 2 packages")
    assert "stop now (Ctrl+C) and set MILLSTREAM_TORCH_INDEX" in told
    assert {f"torch-{VERSION}", "nvidia_cublas-13.0"} <= installed(environment)


def test_cuda_for_an_nvidia_card_needs_no_warning(
    environment: Environment, indexes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(environment, monkeypatch, (indexes / "default").as_uri(), card="NVIDIA")
    told = capsys.readouterr().err
    assert "graphics card: NVIDIA" in told
    assert "built for CUDA" in told
    assert "stop now" not in told


def test_too_little_room_for_cuda_stops_before_anything_comes(
    environment: Environment, indexes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "check_room", refuse)
    with pytest.raises(NoRoom, match="PyTorch with CUDA"):
        install(environment, monkeypatch, (indexes / "default").as_uri())
    assert not any(name.startswith("torch") for name in installed(environment))
    assert environment.sound()


def refuse(environment: Environment, need: int, what: str) -> None:
    raise NoRoom(f"{what} needs too much")


WHEEL = "manylinux_2_28_x86_64.whl"


@pytest.mark.parametrize(
    ("line", "cuda"),
    [
        ("Collecting nvidia-cublas==13.1.1.3.* (from torch==2.13.0)", True),
        ("Collecting cuda-toolkit[cublas]==13.0.3 (from torch==2.13.0)", True),
        ("Collecting triton==3.7.1 (from torch==2.13.0)", True),
        ("Processing /a folder/nvidia_cublas-13.0-py3-none-any.whl (from torch==2.13.0)", True),
        (f"  Downloading torch-2.13.0-cp311-cp311-{WHEEL} (526.1 MB)", True),
        (f"  Downloading torch-2.13.0+cu130-cp311-cp311-{WHEEL} (1.8 GB)", True),
        (f"  Downloading torch-2.13.0+cpu-cp311-cp311-{WHEEL} (190 MB)", False),
        (f"  Downloading torch-2.13.0-cp311-cp311-{WHEEL}.metadata (30 kB)", False),
        ("  Downloading torch-2.13.0-cp311-none-macosx_11_0_arm64.whl (80 MB)", False),
        (f"Processing /opt/wheels/torch-2.13.0+cpu-cp311-cp311-{WHEEL}", False),
        ("Collecting torch==2.13.0", False),
    ],
)
def test_cuda_is_recognised_in_what_pip_writes(line: str, cuda: bool) -> None:
    assert bool(pytorch.CUDA.match(f"{line}\n")) == cuda


@pytest.mark.skipif(os.name == "nt", reason="on Windows the ordinary index has CPU builds")
@pytest.mark.parametrize(
    ("system", "card", "chosen", "first"),
    [
        ("linux", None, None, CPU_INDEX),
        ("linux", "AMD", None, CPU_INDEX),
        ("linux", "NVIDIA", None, None),
        ("linux", "NVIDIA", "https://mirror/cu130", "https://mirror/cu130"),
        ("linux", None, "https://mirror/cpu", "https://mirror/cpu"),
        ("darwin", None, None, None),
        ("darwin", None, "https://mirror/cpu", "https://mirror/cpu"),
    ],
)
def test_the_order_of_the_sources(
    monkeypatch: pytest.MonkeyPatch, system: str, card: str | None, chosen: str | None, first: str | None
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.delenv("MILLSTREAM_TORCH_INDEX", raising=False)
    if chosen:
        monkeypatch.setenv("MILLSTREAM_TORCH_INDEX", chosen)
    *preferred, last = pytorch.sources(card)
    assert [source[1] for source in preferred] == ([first] if first else [])
    assert last == ()


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="this machine has a card")
@pytest.mark.parametrize(
    ("script", "card"),
    [("echo 'GPU 0: Some Card (UUID: GPU-1)'", "NVIDIA"), ("echo failed; exit 9", None), ("echo no devices", None)],
)
def test_a_card_is_what_the_driver_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, card: str | None
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    expected = card or ("AMD" if Path("/dev/kfd").exists() else None)
    assert pytorch.graphics_card() == expected
