"""Takes secrets out of text before a person, a log or a bug report gets it."""

from __future__ import annotations

import logging
import re
from typing import Final

_RULES: Final = (
    # Access tokens, as the Hub makes them; an OAuth token has dots inside.
    (re.compile(r"\bhf_[A-Za-z0-9_.-]{4,}"), "hf_…"),
    # The header, and what a library makes of it: {'authorization': 'Bearer …'}, (b'Authorization', b'Bearer …').
    (re.compile(r"(authorization\W{1,8}(?:b['\"])?)(?:(?:bearer|basic|token)\s+)?[^\s'\",)}\]]+", re.I), r"\1…"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9+/=_.~-]{6,}", re.I), r"\1 …"),
    # A signed address works for whoever has it.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s?#'\"<>]+)\?[^\s'\"<>]*", re.I), r"\1?…"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"<>]+@", re.I), r"\1…@"),
)


def scrub(text: str) -> str:
    """`text` without access tokens, Authorization headers, queries of addresses, and passwords in them."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text


class ScrubFilter(logging.Filter):
    """For the handlers of a log: what they write has no secrets in it, nor have the tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = scrub(record.getMessage())
        record.args = None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = scrub(logging.Formatter().formatException(record.exc_info))
        elif record.exc_text:
            record.exc_text = scrub(record.exc_text)
        return True
