"""Files that a run leaves behind: refused before the work where they cannot be written, and never half there.

A file is written beside its place under a temporary name, synced, and renamed over it; a link is followed, so that what it points
at is replaced and the link stays. What is no regular file (`/dev/null`, a pipe) cannot be replaced and is written to directly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.durable import is_full
from lilliput.machine.places import expand

LONGEST_STEM = 100  # characters of the name that its temporary name repeats: with the rest it must not become too long


def output_path(given: str | os.PathLike[str], what: str) -> Path:
    """Where `given` (the value of the option `what`) leads, once it is sure that a file can be made there. UsageError if not."""
    shown = expand(given, what)
    try:
        path = shown.resolve()
        if path.is_dir():
            raise UsageError(f"{what}: {shown}: needed a file, found a directory: give the name of a file in it")
        if path.exists() and not path.is_file():
            allowed = os.access(path, os.W_OK)
        elif not path.parent.is_dir():
            raise UsageError(f"{what}: {shown}: needed a directory that exists, found no {path.parent}: make it first")
        else:
            allowed = os.access(path.parent, os.W_OK | os.X_OK)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise UsageError(f"{what}: {shown}: {getattr(error, 'strerror', None) or error}; choose another place") from None
    if not allowed:
        raise UsageError(f"{what}: {shown}: {path.parent} cannot be written; choose another place")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """The file to write; it takes the place of `path` if the block ends well, and is gone if it does not.

    DoesNotFitError where the disk is full, LilliputError for any other failure; both name the file.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        temporary = temporary_name(target)
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> LilliputError:
    """What to raise when writing `path` has failed."""
    if is_full(error):
        hint = "free some space (or raise `ulimit -f`), or choose another disk"
        return DoesNotFitError(f"{path}: could not be written: {error.strerror}; {hint}")
    return LilliputError(f"{path}: could not be written: {error.strerror}; choose another place")


def temporary_name(target: Path) -> Path:
    """Where a file is written before it gets its name: beside it, and no other run's."""
    return target.with_name(f"{target.name[:LONGEST_STEM]}.{os.getpid()}.partial")
