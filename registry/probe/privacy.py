"""What must not be in a text that a person sends to others."""

from __future__ import annotations

import re
from pathlib import PurePath

_ENDS = r"(?![\w.-]*[\w-])"
"""No more of a file's name follows; a full stop may."""


def tidy(said: str, home: PurePath) -> str:
    """A text about this machine without the path of the person's home, their name, or a server's.

    The home becomes "~"; its last part, which is the account's name, becomes "USER" wherever it is a part of a path, as
    in /media/USER/Disk; the server of a Windows share becomes "SERVER".
    """
    if len(home.parts) > 1:
        said = re.sub(rf"(?<![^\s\"'“(:]){re.escape(str(home))}{_ENDS}", "~", said, flags=re.IGNORECASE)
        said = re.sub(rf"(?<=[\\/]){re.escape(home.name)}{_ENDS}", "USER", said, flags=re.IGNORECASE)
    return re.sub(r"(?<![\\/\w:])\\\\[^\\/\s?.][^\\/\s]*(?=\\)", r"\\\\SERVER", said)
