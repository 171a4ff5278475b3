import pytest

from engine.units import human_bytes


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (98_362_432, "98.4 MB"),
        (999_949_999, "999.9 MB"),
        (999_950_000, "1.0 GB"),
        (10**13, "10.0 TB"),
    ],
)
def test_bytes_are_told_in_decimal_units(nbytes: int, text: str) -> None:
    assert human_bytes(nbytes) == text
