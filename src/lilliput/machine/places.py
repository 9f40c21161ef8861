"""Where our own files go."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`LILLIPUT_CACHE`, else the user's cache directory by the platform's custom; not created here."""
    given = os.environ.get("LILLIPUT_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lilliput"
