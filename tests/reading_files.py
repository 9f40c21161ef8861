"""Files of known random bytes on disk and in memory, and checked reads through an arena with guard bytes around the destination."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import missing

from lilliput._core import Arena, Reader

GUARD = 0x5C
MARGIN = 1 << 16  # a multiple of every alignment used in tests


def resident_pages(address: int, nbytes: int) -> int | None:
    """Pages of [address, address + nbytes) that are in memory; None where part of it is not mapped. `address` starts a page."""
    seen = (ctypes.c_ubyte * -(-nbytes // mmap.PAGESIZE))()
    if ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), seen) != 0:
        return None
    return sum(page & 1 for page in seen)


def cached_pages(path: Path) -> int:
    """Pages of a file in the page cache."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        found = resident_pages(ctypes.addressof(ctypes.c_char.from_buffer(view)), len(view))
    assert found is not None
    return found


def write_random(path: Path, size: int, seed: int = 0) -> bytes:
    raw = np.random.default_rng(seed).bytes(size)
    path.write_bytes(raw)
    return raw


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("reader") / "big.bin"
    return path, write_random(path, 3_000_017, seed=1)


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory on disk, and one on a file system that has no direct reads."""
    if request.param == "disk":
        yield tmp_path
        return
    if not os.access("/dev/shm", os.W_OK):
        missing("/dev/shm is not here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


class Landing:
    """Memory for one extent, guarded before and behind."""

    def __init__(self, reader: Reader, file: int, offset: int, nbytes: int) -> None:
        self.offset, self.nbytes = offset, nbytes
        self.begin, self.length = reader.extent(file, offset, nbytes)
        self.arena = Arena(self.length + 2 * MARGIN)
        self.arena.array()[:] = GUARD
        self.address = self.arena.address + MARGIN

    def asked(self) -> bytes:
        start = MARGIN + self.offset - self.begin
        return self.arena.array()[start : start + self.nbytes].tobytes()

    def guards_intact(self) -> bool:
        whole = self.arena.array()
        return bool((whole[:MARGIN] == GUARD).all() and (whole[MARGIN + self.length :] == GUARD).all())


def start(reader: Reader, file: int, offset: int, nbytes: int, *, urgent: bool = False) -> tuple[int, Landing]:
    landing = Landing(reader, file, offset, nbytes)
    return reader.submit(file, offset, nbytes, landing.address, urgent), landing


def read(reader: Reader, file: int, offset: int, nbytes: int) -> bytes:
    ticket, landing = start(reader, file, offset, nbytes)
    reader.wait(ticket)
    assert landing.guards_intact()
    return landing.asked()


def opened(path: Path, **options: object) -> tuple[Reader, int]:
    reader = Reader(**options)
    return reader, reader.add(path, path.stat().st_size)
