"""Memory, within what a container grants."""

from __future__ import annotations

from pathlib import Path

import psutil

from engine.memory.machine import free_memory, total_memory
from registry.probe.tree import Memory


def memory(root: Path) -> Memory:
    return Memory(total_memory(root), free_memory(root), psutil.virtual_memory().total)
