"""Memory for native code."""

from __future__ import annotations

import pytest

from engine.buffers import ALIGNMENT, LARGE_PAGE, aligned, in_large_pages


@pytest.mark.parametrize("nbytes", [1, 63, 4096, LARGE_PAGE - 1, LARGE_PAGE, 3 * LARGE_PAGE + 5])
@pytest.mark.parametrize("allocate", [aligned, in_large_pages])
def test_memory_has_the_size_and_the_boundary_that_were_asked_for(allocate, nbytes) -> None:
    buffer = allocate(nbytes)
    assert buffer.size == nbytes and buffer.ctypes.data % ALIGNMENT == 0
    buffer[:] = 7
    assert (buffer == 7).all()


def test_memory_outlives_the_name_it_was_given() -> None:
    part = in_large_pages(2 * LARGE_PAGE)[LARGE_PAGE : LARGE_PAGE + 9]
    part[:] = range(9)
    assert part.tolist() == list(range(9))


@pytest.mark.parametrize("allocate", [aligned, in_large_pages])
def test_more_than_there_can_be_is_a_memory_error(allocate) -> None:
    with pytest.raises(MemoryError):
        allocate(1 << 60)
