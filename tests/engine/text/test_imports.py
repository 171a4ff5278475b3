"""Importing the package costs nothing that only a loaded model needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_libraries_are_imported_when_a_model_is_loaded_and_not_before() -> None:
    code = "import sys, engine, engine.text; print({'jinja2', 'tokenizers', 'torch'} & set(sys.modules))"
    root = Path(__file__).parents[3]
    ran = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
