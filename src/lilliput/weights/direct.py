"""Reading large files once: past the page cache where the file system allows it, and without the holes.

Direct reads cost a fiftieth of the processor time and leave the user's cached files alone; a file that is read once gains nothing
from the cache.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput.errors import LilliputError

Bytes = npt.NDArray[np.uint8]

BLOCK = 4096  # bytes; addresses, offsets and lengths of direct reads are multiples of it
MOST_PER_CALL = 1 << 30


def room(nbytes: int) -> int:
    """Bytes of buffer, a multiple of `BLOCK`, for a read of `nbytes` from any offset."""
    return (nbytes + 2 * BLOCK - 2) // BLOCK * BLOCK


def memory(nbytes: int) -> Bytes:
    """Zeroed memory that starts at a page, on huge pages where the kernel grants them."""
    area = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, np.uint8)


class DirectFile:
    """A file open for reading by position. `size` is what it must have: another one means that it was replaced or truncated.

    Raises LilliputError naming the file when it cannot be opened, cannot be read, or is not what it was. May be used by several
    threads.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._direct = getattr(os, "O_DIRECT", 0)
        self._fd = self._open()
        status = os.fstat(self._fd)
        if status.st_size != size:
            os.close(self._fd)
            raise LilliputError(f"{path}: needed {size:,} bytes, found {status.st_size:,}: it was replaced while in use; start again")
        # Asked only of files that are sparse: there are file systems that once called fresh data a hole.
        self._sparse = hasattr(os, "SEEK_DATA") and status.st_blocks * 512 < size

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | self._direct)
        except OSError as error:
            if self._direct and error.errno == errno.EINVAL:
                self._direct = 0
                return self._open()
            raise LilliputError(f"{self.path}: cannot be opened: {error.strerror}") from error

    def is_hole(self, offset: int, nbytes: int) -> bool:
        """Whether the bytes are known to be zeros that take no room on disk."""
        if not self._sparse:
            return False
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA) >= offset + nbytes
        except OSError as error:
            return error.errno == errno.ENXIO  # no data from here to the end; anything else: not known

    def read(self, offset: int, nbytes: int, buffer: Bytes) -> Bytes:
        """The bytes, as a part of `buffer` (from `memory`, `room(nbytes)` long)."""
        begin = offset // BLOCK * BLOCK
        end = -(-(offset + nbytes) // BLOCK) * BLOCK
        view = buffer[: end - begin].data
        done, needed = 0, offset + nbytes - begin
        while done < needed:
            got = self._read_some(view[done : done + MOST_PER_CALL], begin + done)
            end_here = begin + done + got
            if self._direct and done + got < needed:
                got = got // BLOCK * BLOCK  # a direct read goes on where a block begins
            if got == 0:
                raise LilliputError(
                    f"{self.path}: needed {nbytes:,} bytes at {offset:,}, found the end of the file at {end_here:,}: "
                    "it was truncated while in use; check the disk and start again"
                )
            done += got
        return buffer[offset - begin : offset - begin + nbytes]

    def _read_some(self, view: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._fd, [view], offset)
        except OSError as error:
            if self._direct and error.errno == errno.EINVAL:  # opened, yet not readable that way: some network and FUSE mounts
                self._direct = 0
                self._fd = self._open()  # the old one stays open: other threads may be reading from it
                return self._read_some(view, offset)
            raise LilliputError(f"{self.path}: reading {len(view):,} bytes at {offset:,} failed: {error.strerror}") from error

    def close(self) -> None:
        os.close(self._fd)
