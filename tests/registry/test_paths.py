"""Names from elsewhere, and what must never be written under."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from engine.errors import DownloadError
from registry.paths import made_safe, safe_id, safe_path

SOUND = [
    "m.gguf",
    "BF16/m-00001-of-00002.gguf",
    "山 é/模型.gguf",
    "a.b.c",
    ".gitattributes",
    "console.gguf",
    "com10",
    "…",
]
UNSAFE = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../m.gguf",
    "a/../../m.gguf",
    "a/./b",
    "a//b",
    "a/",
    ".",
    "C:/m.gguf",
    "C:m.gguf",
    "m.gguf:stream",
    "\\\\server\\share",
    "..\\m.gguf",
    "a\\b",
    "m\0.gguf",
    "m\n.gguf",
    "m\x7f.gguf",
    "m\x85.gguf",
    "m\ud800.gguf",
    "fugg\u202e.exe",
    "NUL",
    "nul.gguf",
    "con",
    "a/Aux.txt",
    "COM1",
    "lpt9.gguf",
    "COM¹.gguf",
    "CONIN$",
    "nul .gguf",
    "a./b",
    "m.gguf.",
    "m.gguf ",
    "a?.gguf",
    "a*",
    "<a>",
    'a"b',
    "a|b",
    "x" * 256,
    "é" * 128,
    "/".join("x" * 100 for _ in range(11)),
]


@pytest.mark.parametrize("path", SOUND)
def test_a_sound_path_stays_as_it_is_and_inside(path: str, folder: Path) -> None:
    assert safe_path(path) == PurePosixPath(path)
    target = folder / safe_path(path)
    assert target.resolve().is_relative_to(folder.resolve())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"x")
    windows = PureWindowsPath(path)
    assert not windows.drive and not windows.root and ".." not in windows.parts


@pytest.mark.parametrize("path", UNSAFE)
def test_an_unsafe_path_is_refused_in_one_printable_sentence(path: str) -> None:
    with pytest.raises(DownloadError, match="not safe to write") as caught:
        safe_path(path)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 300 and text.endswith("The file is not fetched.")


@pytest.mark.parametrize("id", ["org/name", "Qwen/Qwen3-4B-GGUF", "a/b", "a_b/c.d-e", "TheBloke/x.y", "x" * 96 + "/y"])
def test_a_repository_s_name_is_known(id: str) -> None:
    assert safe_id(id) == id


@pytest.mark.parametrize(
    "id",
    [
        *UNSAFE,
        "name",
        "a/b/c",
        "a/b.git",
        "a--b/c",
        "a/b..c",
        "-a/b",
        "a/b-",
        ".a/b",
        "a/b.",
        "é/b",
        "a/b c",
        "con/b",
        "a/nul",
        "a/com1.x",
        "a/" + "x" * 97,
        "a/b\n",
        "a/b?x=1",
        "a/b%2f",
    ],
)
def test_another_name_is_refused(id: str) -> None:
    with pytest.raises(DownloadError, match="owner/name"):
        safe_id(id)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("tiny:3b", "tiny-3b"),
        ("../../etc/passwd", "etc-passwd"),
        ("con.gguf", "_con.gguf"),
        ("", "_"),
        ("...", "_"),
        (".hidden.gguf", "hidden.gguf"),
        ("a\0b\nc.gguf", "a-b-c.gguf"),
        ("photo\u202efugg.exe", "photo-fugg.exe"),
        ("ends. .", "ends"),
        ("山 é.gguf", "山 é.gguf"),
        ("山" * 200 + ".gguf", "山" * 58 + ".gguf"),
        ("big-00001-of-00002.gguf", "big-00001-of-00002.gguf"),
    ],
)
def test_a_name_is_made_one_that_every_system_takes(name: str, safe: str) -> None:
    assert made_safe(name) == safe
    assert safe_path(safe).name == safe
    assert made_safe(safe) == safe
