"""Files that a run leaves behind: refused before the work where they cannot be written, and never half there.

A file is written beside its place under a temporary name, synced, and renamed over it; a link is followed, so that what it points
at is replaced and the link stays. What is no regular file (`/dev/null`, a pipe) cannot be replaced and is written to directly, and so
is what an open descriptor leads to (`/dev/stdout`, the `/dev/fd/63` of a shell's `>(command)`), whatever it is: a file there belongs
to whoever has opened it, and goes on where it is.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import EllipsisType
from typing import BinaryIO

from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.durable import is_full
from lilliput.machine.places import expand

LONGEST_STEM = 100  # characters of the name that its temporary name repeats: with the rest it must not become too long
MOST_LINKS = 40  # as the kernel

Stamp = tuple[int, int, int, int]  # device, inode, bytes, time of the last change


def output_path(given: str | os.PathLike[str], what: str) -> Path:
    """Where `given` (the value of the option `what`) leads, once it is sure that a file can be made there. UsageError if not."""
    shown = expand(given, what)
    try:
        if shown.is_dir():
            raise UsageError(f"{what}: {shown}: needed a file, found a directory: give the name of a file in it")
        number = descriptor(shown)
        if number is not None:
            path, allowed = Path(f"/dev/fd/{number}"), fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        elif is_direct(shown):
            path, allowed = shown, os.access(shown, os.W_OK)
        else:
            path = shown.resolve()
            if not path.parent.is_dir():
                raise UsageError(f"{what}: {shown}: needed a directory that exists, found no {path.parent}: make it first")
            allowed = os.access(path.parent, os.W_OK | os.X_OK)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise UsageError(f"{what}: {shown}: {getattr(error, 'strerror', None) or error}; choose another place") from None
    if not allowed:
        raise UsageError(f"{what}: {shown}: {path.parent} cannot be written; choose another place")
    return path


def descriptor(path: Path) -> int | None:
    """The number of the open descriptor of this process that `path` is a name of. Raises OSError for one that is not open."""
    ours = os.path.realpath("/dev/fd")
    place = Path.cwd() / path
    for _ in range(MOST_LINKS):
        place = Path(os.path.realpath(place.parent)) / place.name
        if str(place.parent) == ours and place.name.isdecimal():
            os.fstat(int(place.name))
            return int(place.name)
        if not place.is_symlink():
            break
        place = place.parent / place.readlink()
    return None


def is_direct(path: Path) -> bool:
    """Whether `path` is written to as it is, instead of being replaced."""
    return descriptor(path) is not None or (path.exists() and not path.is_file())


def open_direct(path: Path) -> BinaryIO:
    """What `is_direct`, open for writing; a descriptor goes on where it stands."""
    number = descriptor(path)
    if number is None:
        return path.open("wb")
    if sys.stdout is not None:
        sys.stdout.flush()  # what was said before stands before it
    return os.fdopen(os.dup(number), "wb")


def discard(file: BinaryIO) -> None:
    """Close a file without writing what it still holds: a pipe that nobody reads would keep us for ever."""
    if file.closed:
        return
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, file.fileno(), inheritable=False)
        finally:
            os.close(null)
    with suppress(OSError):
        file.close()


@contextmanager
def replacing(path: Path, *, was: Stamp | EllipsisType | None = ...) -> Iterator[BinaryIO]:
    """The file to write; it takes the place of `path` if the block ends well, and is gone if it does not.

    `was`: what `stamp` has said of `path`. If it says something else by then, the file there is somebody's and stays; the new one gets a
    name beside it, which the LilliputError tells.

    DoesNotFitError where the disk is full, LilliputError for any other failure; both name the file.
    """
    try:
        if is_direct(path):
            pipe = open_direct(path)
            try:
                yield pipe
                pipe.close()
            finally:
                discard(pipe)
            return
        target = path.resolve()
        temporary = temporary_name(target)
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if was is ...:
                temporary.replace(target)
            else:
                _replace_unchanged(temporary, target, was)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path, error) from error


def stamp(path: Path) -> Stamp | None:
    """What tells one content of `path` from another; None where there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _replace_unchanged(temporary: Path, target: Path, was: Stamp | None) -> None:
    with _one_at_a_time(target.parent):
        if stamp(target) == was:
            temporary.replace(target)
            return
    beside = _beside(target, secrets.token_hex(4))
    temporary.replace(beside)
    raise LilliputError(f"{target}: was saved by another run after this one had looked at it, and is left as it is; this run's is {beside}")


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Of the processes that look and then replace in `directory`; where that cannot be had (some network disks), without."""
    with ExitStack() as stack:
        with suppress(OSError):
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, opened)
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def not_written(path: Path, error: OSError) -> LilliputError:
    """What to raise when writing `path` has failed."""
    if is_full(error):
        hint = "free some space (or raise `ulimit -f`), or choose another disk"
        return DoesNotFitError(f"{path}: could not be written: {error.strerror}; {hint}")
    return LilliputError(f"{path}: could not be written: {error.strerror}; choose another place")


def temporary_name(target: Path) -> Path:
    """Where a file is written before it gets its name: beside it, and nobody else's, also where process ids are the same."""
    return _beside(target, f"{secrets.token_hex(4)}.partial")


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(f"{target.name[:LONGEST_STEM]}.{suffix}")
