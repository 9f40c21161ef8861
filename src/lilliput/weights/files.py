"""Reading bytes out of the shards by position."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput.errors import LilliputError

Bytes = npt.NDArray[np.uint8]

MOST_PER_CALL = 1 << 30  # Linux cuts a read at 2 GiB - 4096, macOS refuses one of 2 GiB


class ShardFiles:
    """The open files of a checkpoint. A file that vanished, shrank or was replaced since it was indexed ends the run."""

    def __init__(self, paths: Sequence[Path], sizes: Sequence[int]) -> None:
        self._paths, self._sizes = tuple(paths), tuple(sizes)
        self._fds: dict[int, int] = {}
        self.bytes_read = 0

    def read(self, file: int, offset: int, nbytes: int) -> Bytes:
        """A fresh array with `nbytes` bytes of file number `file`, from `offset` on."""
        out = np.empty(nbytes, np.uint8)
        self.read_into(file, offset, out)
        return out

    def read_into(self, file: int, offset: int, out: Bytes) -> None:
        """Fill `out` (contiguous uint8). Raises LilliputError naming the file when the bytes are not there."""
        view = out.data
        done = 0
        while done < len(view):
            try:
                got = os.preadv(self._open(file), [view[done : done + MOST_PER_CALL]], offset + done)
            except OSError as error:
                raise LilliputError(f"{self._paths[file]}: reading {len(view)} bytes at {offset} failed: {error.strerror}") from error
            if got == 0:
                raise LilliputError(
                    f"{self._paths[file]}: needed {len(view)} bytes at {offset}, found the end of the file at {offset + done}: "
                    "it was truncated while in use; check the disk and start again"
                )
            done += got
        self.bytes_read += done

    def _open(self, file: int) -> int:
        fd = self._fds.get(file)
        if fd is None:
            path = self._paths[file]
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise LilliputError(f"{path}: cannot be opened any more: {error.strerror}") from error
            found = os.fstat(fd).st_size
            if found != self._sizes[file]:
                os.close(fd)
                raise LilliputError(f"{path}: needed {self._sizes[file]} bytes, found {found}: it was replaced while in use; start again")
            self._fds[file] = fd
        return fd

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
