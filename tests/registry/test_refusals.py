"""Of what a disk refuses, a sentence says the place and the way out."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from engine.errors import StorageError
from registry.downloads.files import storage as storage_of_downloads
from registry.refusals import storage

CODES = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENOENT, errno.EIO, errno.ENOTDIR),
)


def said(code: int, path: Path, **way: str) -> str:
    with pytest.raises(StorageError) as caught, storage(path, **way):
        raise OSError(code, os.strerror(code))
    return str(caught.value)


@pytest.mark.parametrize("code", CODES)
def test_every_refusal_has_a_sentence_with_the_place_and_what_to_do(code: int, folder: Path) -> None:
    for path in (folder, folder / "x.part", folder / "gone" / "x.part"):
        sentence = said(code, path)
        assert str(path.parent if path.suffix else path) in sentence
        assert sentence.endswith("try again.")
        assert said(code, path, then="resume the download") == sentence.replace("try again", "resume the download")


@pytest.mark.parametrize("code", CODES)
def test_of_a_download_the_way_out_is_to_resume_it(code: int, folder: Path) -> None:
    with pytest.raises(StorageError, match="and resume the download") as caught, storage_of_downloads(folder / "x"):
        raise OSError(code, os.strerror(code))
    assert "try again" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="whom the system lets do everything")
def test_a_place_that_nobody_may_look_into_has_its_sentence_too(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        with pytest.raises(StorageError, match="not open to you"), storage(closed / "deep" / "x"):
            (closed / "deep" / "x").stat()
    finally:
        closed.chmod(0o755)
