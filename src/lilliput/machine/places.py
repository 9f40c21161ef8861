"""Paths that people type, and where our own files go."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from lilliput.errors import UsageError, shown

_PACKAGE = Path(__file__).resolve().parent.parent


def expand(path: str | os.PathLike[str], what: str) -> Path:
    """A path as typed, with `~` resolved; UsageError, which names it as `what`, for one that no file can have."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):  # a PathLike may stand for bytes
        raise UsageError(f"{what}: needed a path, found {shown(path)}")
    if not text or "\0" in text:
        raise UsageError(f"{what}: needed a path, found {'nothing' if not text else 'one with a NUL in it'}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise UsageError(f"{what}: needed a path, found {text!a}: no file can have that name") from None
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{what}: {text}: this user's home directory is not known: give the path in full") from None


def cache_directory() -> Path:
    """`LILLIPUT_CACHE`, else `lilliput` in the user's cache directory; not created here. UsageError where there is none."""
    given = os.environ.get("LILLIPUT_CACHE")
    if given:
        return expand(given, "LILLIPUT_CACHE")
    return _of_the_user("Library/Caches" if sys.platform == "darwin" else ".cache", "set LILLIPUT_CACHE to a directory that can be written")


def data_directory() -> Path:
    """`lilliput` in the user's data directory; not created here. UsageError where there is none."""
    return _of_the_user("Library/Application Support" if sys.platform == "darwin" else ".local/share", "name the place with -o or --trunk")


def _of_the_user(folder: str, otherwise: str) -> Path:
    try:
        return Path.home() / folder / "lilliput"
    except RuntimeError:
        raise UsageError(f"this user has no home directory for our files: {otherwise}") from None


def is_ours(path: Path) -> bool:
    """Does `path` lie inside this package, which belongs to the installer?"""
    try:
        return path.resolve().is_relative_to(_PACKAGE)
    except (OSError, RuntimeError, ValueError):  # a loop of links before Python 3.13; a NUL: no path of ours
        return False


def packed_directory(model: Path, files: Sequence[Path]) -> Path:
    """Where the packed tape of the checkpoint in `model` is looked for and written by default; not created here.

    The sibling directory `MODEL.lilliput`, links in `model` resolved, so that every spelling means the same place. Where the
    checkpoint is a snapshot of a hub's cache, the cache tidies up by its own rules, and what lies inside this package belongs to the
    installer: there the user's data directory. `files` are the shards with links resolved.
    """
    real = model.resolve()
    repository = real.parent.parent
    in_cache = real.parent.name == "snapshots" and (repository.name.startswith("models--") or (repository / "blobs").is_dir())
    linked = any(file.parent.name == "blobs" and file.parent != real for file in files)
    if not (in_cache or linked or is_ours(real)) and real.name:
        return real.with_name(real.name + ".lilliput")
    name = f"{repository.name}@{real.name}" if in_cache else real.name
    digest = hashlib.blake2b(os.fsencode(real), digest_size=6).hexdigest()  # two caches may hold the same snapshot
    return data_directory() / "packed" / f"{name}-{digest}"
