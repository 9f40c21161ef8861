"""Reading bytes out of the shards by position."""

from __future__ import annotations

import errno
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
        self._paths = tuple(paths)
        self._fds: list[int] = []
        self.bytes_read = 0
        try:  # all at once: a file that is replaced later (by one of the same size, even) is then not mixed with the old ones
            for path, size in zip(paths, sizes, strict=True):
                self._fds.append(self._open(path, size))
        except BaseException:
            self.close()
            raise

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
                got = os.preadv(self._fds[file], [view[done : done + MOST_PER_CALL]], offset + done)
            except OSError as error:
                raise LilliputError(f"{self._paths[file]}: reading {len(view)} bytes at {offset} failed: {error.strerror}") from error
            if got == 0:
                raise LilliputError(
                    f"{self._paths[file]}: needed {len(view)} bytes at {offset}, found the end of the file at {offset + done}: "
                    "it was truncated while in use; check the disk and start again"
                )
            done += got
        self.bytes_read += done

    def _open(self, path: Path, size: int) -> int:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe in its place does not make us wait
        except OSError as error:
            hint = "; raise it with `ulimit -n 1024`" if error.errno == errno.EMFILE else ""
            raise LilliputError(f"{path}: cannot be opened any more: {error.strerror}{hint}") from error
        found = os.fstat(fd).st_size
        if found != size:
            os.close(fd)
            raise LilliputError(f"{path}: needed {size} bytes, found {found}: it was replaced while in use; start again")
        return fd

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
