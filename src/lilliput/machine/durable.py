"""Files that survive a kill and a power cut, and what the disk has to say about it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from lilliput.errors import DoesNotFitError, LilliputError


def sync(fd: int) -> None:
    """Bring a file to the disk."""
    os.fsync(fd)


def sync_directory(directory: Path) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def allocated(path: Path) -> int:
    """Bytes a file takes on disk."""
    return path.stat().st_blocks * 512


def free_bytes(directory: Path) -> int:
    """Bytes that an ordinary user may still write to the file system of `directory`, which may not exist yet."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def write_durably(path: Path, data: bytes) -> None:
    """The whole file or none: written beside it under a temporary name, brought to the disk, renamed."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())
    temporary.rename(path)
    sync_directory(path.parent)


def write_fully(fd: int, data: memoryview, offset: int) -> None:
    """pwrite until everything is written; OSError as the kernel says."""
    while data:
        done = os.pwrite(fd, data, offset)
        data, offset = data[done:], offset + done


def is_full(error: OSError) -> bool:
    """Whether room is what was missing."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def readable(error: OSError, path: Path, kept: str) -> LilliputError:
    """A failed write in one sentence, `DoesNotFitError` where room is what was missing. `kept`: what becomes of the part written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DoesNotFitError(f"{path}: the disk became full while writing ({error.strerror}); {kept}")
    if error.errno == errno.EFBIG:
        return DoesNotFitError(f"{path}: the file system or `ulimit -f` does not allow files this large; {kept}")
    return LilliputError(f"{error.filename or path}: could not be written: {error.strerror}; {kept}")
