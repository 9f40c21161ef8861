"""Where our own files go."""

from __future__ import annotations

import os
from pathlib import Path

from lilliput.errors import UsageError


def cache_directory() -> Path:
    """`LILLIPUT_CACHE`, else `lilliput/` in `XDG_CACHE_HOME` or `~/.cache`; not created here. Raises UsageError where there is no home."""
    try:
        if given := os.environ.get("LILLIPUT_CACHE"):
            return Path(given).expanduser()
        base = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "lilliput"
    except RuntimeError as error:
        raise UsageError(f"no cache directory: {error}; set LILLIPUT_CACHE to a directory that can be written") from None
