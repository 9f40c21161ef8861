"""Paths that people type, and where our own files go."""

from __future__ import annotations

import os
from pathlib import Path

from lilliput.errors import UsageError


def expand(path: str | os.PathLike[str], what: str) -> Path:
    """A path as typed, with `~` resolved; UsageError, which names it as `what`, for one that no file can have."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise UsageError(f"{what}: needed a path, found {'nothing' if not text else 'one with a NUL in it'}")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{what}: {text}: this user's home directory is not known: give the path in full") from None


def cache_directory() -> Path:
    """`LILLIPUT_CACHE`, else the user's cache directory by the platform's custom; not created here. UsageError where there is none."""
    given = os.environ.get("LILLIPUT_CACHE")
    if given:
        return expand(given, "LILLIPUT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):  # the standard: a relative one is ignored
        return Path(base) / "lilliput"
    try:
        return Path.home() / ".cache" / "lilliput"
    except RuntimeError:
        raise UsageError("this user has no home directory for caches: set LILLIPUT_CACHE to a directory that can be written") from None
