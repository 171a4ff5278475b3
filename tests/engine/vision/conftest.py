"""What the tests of towers share."""

from __future__ import annotations

from tests.engine.models.conftest import one_torch_thread

__all__ = ["one_torch_thread"]
