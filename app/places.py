"""Where the program keeps what is its own. Models have a folder of theirs (`registry.library`)."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_log_path


def settings_file() -> Path:
    """Size and place of the window: in `$MILLSTREAM_HOME`, else where the system keeps configuration."""
    return (_home() or user_config_path("millstream", appauthor=False)) / "window.ini"


def log_file() -> Path:
    home = _home()
    return (home / "logs" if home else user_log_path("millstream", appauthor=False)) / "millstream.log"


def measurements_file() -> Path:
    """How fast this machine's disks and memory are. It may be deleted: what is missing is measured again."""
    home = _home()
    return (home / "cache" if home else user_cache_path("millstream", appauthor=False)) / "measurements.json"


def last_used_file() -> Path:
    """When each model was loaded last. It may be deleted."""
    return settings_file().with_name("last-used.json")


def budgets_file() -> Path:
    """What each model may use, where a person chose that. It may be deleted: what is missing is chosen anew."""
    return settings_file().with_name("budgets.json")


def headers_folder() -> Path:
    """The beginnings of models that are elsewhere. It may be deleted: what is missing is fetched again."""
    home = _home()
    return (home / "cache" if home else user_cache_path("millstream", appauthor=False)) / "headers"


def _home() -> Path | None:
    home = os.environ.get("MILLSTREAM_HOME")
    return Path(home).expanduser() if home else None
