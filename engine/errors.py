"""Errors that a person can act on: what is wrong, where, and what to do about it.

Every message is one or two plain sentences, fit for a window or a terminal. The command line turns any
`MillstreamError` into exit code 2; the window shows its text. Anything else that escapes is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MillstreamError(Exception):
    """Base of all errors that Millstream raises on purpose."""


class ModelFileError(MillstreamError):
    """A model file is missing, truncated, damaged or not what it claims to be."""


class UnsupportedModelError(MillstreamError):
    """A sound file whose architecture, encoding, tokenizer or template this engine does not know."""


class ImageError(MillstreamError):
    """A picture is missing, damaged, too large, of an unknown kind, or of a shape that the model cannot take."""


class ContextError(MillstreamError):
    """The prompt does not fit into the context."""


class SettingsError(MillstreamError):
    """A setting or an argument is outside what is allowed."""


class BudgetError(MillstreamError):
    """The memory that was granted, or that is free, is too little."""


class NumericsError(MillstreamError):
    """NaN, infinity or an overflow where the model must have finite numbers."""


class DownloadError(MillstreamError):
    """A model could not be fetched or failed its check."""


class StorageError(MillstreamError):
    """The disk refused: full, read-only, or gone."""


@contextmanager
def naming(file: str, *others: str) -> Iterator[None]:
    """Give errors about a model the name of the file that it is from, unless they name it, or one of the `others`."""
    try:
        yield
    except (ModelFileError, UnsupportedModelError) as error:
        if any(name in str(error) for name in (file, *others)):
            raise
        raise type(error)(f"{file}: {error}") from None
