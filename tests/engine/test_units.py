from __future__ import annotations

import random

import pytest

from engine.errors import SettingsError
from engine.units import LARGEST, elided, human_bytes, parse_bytes, plural


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (98_362_432, "98.4 MB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"),
        (10**13, "10.0 TB"),
        (10**18, "1000.0 PB"),
    ],
)
def test_bytes_are_told_in_decimal_units(nbytes: int, text: str) -> None:
    assert human_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("7B", 7),
        ("64kB", 64_000),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("512MB", 512_000_000),
        ("512 MiB", 512 << 20),
        ("1.5GB", 1_500_000_000),
        ("1.5GiB", 3 << 29),
        (".5gb", 500_000_000),
        ("2.gib", 2 << 30),
        ("  3tb ", 3 * 10**12),
        ("8TiB", 8 << 40),
        ("1PB", 10**15),
        ("2PiB", 2 << 50),
        ("512M", 512_000_000),
        ("4g", 4 * 10**9),
        ("1.5 K", 1500),
        ("2T", 2 * 10**12),
        ("1p", 10**15),
        ("1.0009kB", 1000),
        ("0.1GB", 100_000_000),
        (str(LARGEST), LARGEST),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


def test_what_is_told_can_be_read_again() -> None:
    draws = random.Random(5)
    for _ in range(200):
        nbytes = draws.randrange(1, 10 ** draws.randrange(1, 15))
        assert parse_bytes(human_bytes(nbytes).removesuffix(" bytes").removesuffix(" byte")) == pytest.approx(
            nbytes, rel=0.051
        )


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GB", "MB5", "-1", "-1GB", "+1GB", "nan", "inf", "1e400", "1e3MB", "0x10", "1_000", "1,5GB"),
        *("1GB2", "1 G B", "4E", "1.5.5GB", ".", "5 apples", "1GBps", "½GB", "٣GB", "auto", "1" * 10_000),
    ],
)
def test_what_is_no_size_gets_one_sentence(text: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a size: write .*\.$") as refusal:
        parse_bytes(text)
    assert len(str(refusal.value)) < 140


@pytest.mark.parametrize("text", [str(LARGEST + 1), "9" * 20, "9" * 20 + "TB", "10000000TB"])
def test_more_than_can_be_counted_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"more than any machine has\.$"):
        parse_bytes(text)


def test_a_noun_follows_its_number() -> None:
    assert [f"{n} {plural(n, 'token')}" for n in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]


def test_a_long_text_keeps_its_ends() -> None:
    assert elided("a name", 6) == "a name"
    assert [elided("abcdefgh", most) for most in (7, 6)] == ["abc…fgh", "abc…gh"]
    assert len(elided("x" * 5000)) == 40
