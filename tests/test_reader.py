"""The reader: the right bytes, nothing beside them, past the page cache or with a reason."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import missing
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_files import big, cached_pages, opened, place, read, start, write_random

from lilliput._core import Arena, FaultPlan, Reader

SIZES = (1, 511, 512, 4095, 4096, 4097, 70_001, 1_000_003)
BLOCK = 4096

__all__ = ["big", "place"]  # fixtures


def needs_direct(reader: Reader, file: int) -> None:
    if reader.mode(file) != "direct":
        missing("the temporary directory's file system has no direct reads")


def descriptor_flags(path: Path) -> list[int]:
    """The open flags of this process's descriptors of a file."""
    flags = []
    for fd in list(Path("/proc/self/fd").iterdir()):
        try:
            if fd.readlink() == path:
                lines = Path(f"/proc/self/fdinfo/{fd.name}").read_text().splitlines()
                flags += [int(line.split()[1], 8) for line in lines if line.startswith("flags")]
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return flags


# ---- bytes


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("direct", [True, False])
def test_random_extents_of_files_of_odd_sizes(place: Path, threads: int, direct: bool) -> None:
    rng = np.random.default_rng(2)
    reader = Reader(threads=threads, request_bytes=16384, direct=direct)
    files = []
    for i, size in enumerate(SIZES):
        raw = write_random(place / f"{i}.bin", size, seed=i)
        files.append((reader.add(place / f"{i}.bin", size), raw))
    pending = []
    for _ in range(12):
        for file, raw in files:
            offset = int(rng.integers(len(raw)))
            nbytes = int(rng.integers(1, len(raw) - offset + 1))
            pending.append((raw[offset : offset + nbytes], start(reader, file, offset, nbytes, urgent=bool(rng.integers(2)))))
    for file, raw in files:
        pending.append((raw, start(reader, file, 0, len(raw))))
    for expected, (ticket, landing) in pending:
        reader.wait(ticket)
        assert landing.asked() == expected
        assert landing.guards_intact()


@settings(max_examples=60)
@given(data=st.data(), alignment=st.sampled_from([512, 4096, 16384]), request=st.sampled_from([4096, 20000, 1 << 20]))
def test_any_extent_under_any_alignment(big: tuple[Path, bytes], data: st.DataObject, alignment: int, request: int) -> None:
    path, raw = big
    offset = data.draw(st.integers(0, len(raw) - 1))
    nbytes = data.draw(st.integers(1, min(len(raw) - offset, 300_000)))
    reader, file = opened(path, threads=2, request_bytes=request, faults=FaultPlan(alignment=alignment))
    mode = reader.mode(file)
    begin, length = reader.extent(file, offset, nbytes)
    assert (begin % alignment, length % alignment) == (0, 0)
    assert offset - alignment < begin <= offset
    assert offset + nbytes <= begin + length < offset + nbytes + alignment
    assert read(reader, file, offset, nbytes) == raw[offset : offset + nbytes]
    assert reader.mode(file) == mode  # no read was refused for its alignment


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("seed", range(4))
def test_delays_short_reads_and_reordering_cannot_show(big: tuple[Path, bytes], threads: int, seed: int) -> None:
    path, raw = big
    interrupted = [(3, 4), (7, 4), (8, 4)]  # EINTR
    plan = FaultPlan(seed=seed, delay_us_max=200, short_reads=True, reorder=True, fail_at=interrupted)
    reader, file = opened(path, threads=threads, request_bytes=65536, faults=plan)
    mode = reader.mode(file)
    cuts = [0, 5, 123_457, 123_458, 1_000_000, 2_999_000, len(raw)]
    pending = [(a, b, start(reader, file, a, b - a, urgent=i % 2 == 0)) for i, (a, b) in enumerate(itertools.pairwise(cuts))]
    for a, b, (ticket, landing) in pending:
        reader.wait(ticket)
        assert landing.asked() == raw[a:b]
        assert landing.guards_intact()
    assert reader.mode(file) == mode  # a short read goes on at a block, where direct reads can
    stats = reader.stats()
    assert len(plan.calls()) > stats["requests"]
    assert stats["bytes_read"] > len(raw)


def test_offsets_beyond_four_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    offset, size = (1 << 32) + 12_345, (1 << 32) + 20_011
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(offset)
        file.write(b"far away")
    reader, number = opened(path)
    assert read(reader, number, offset, 8) == b"far away"
    assert read(reader, number, size - 1, 1) == b"\0"


def test_no_call_asks_for_more_than_a_gibibyte(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    path.touch()
    os.truncate(path, 3_000_000_000)
    plan = FaultPlan(fail_at=[(1, 5)], alignment=BLOCK)  # before any memory is touched
    reader, file = opened(path, threads=1, request_bytes=1 << 30, faults=plan)
    arena = Arena(3_000_008_192)
    with pytest.raises(OSError, match="EIO"):
        reader.wait(reader.submit(file, 0, 3_000_000_000, arena.address, False))
    assert [call[2] for call in plan.calls()] == [(3_000_000_000 // 3 + BLOCK - 1) // BLOCK * BLOCK]
    with pytest.raises(ValueError, match="request_bytes"):
        Reader(request_bytes=(1 << 30) + 1)


# ---- past the page cache, or with a reason


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_direct_reads_are_in_use(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path)
    needs_direct(reader, file)
    (flags,) = descriptor_flags(path)
    assert flags & os.O_DIRECT
    assert flags & os.O_ACCMODE == os.O_RDONLY
    read(reader, file, 1, len(raw) - 1)
    assert reader.mode(file) == "direct"
    assert reader.buffered() == []
    assert reader.stats()["buffered_files"] == 0
    reader.close()
    assert descriptor_flags(path) == []


@pytest.mark.parametrize("nth", [1, 100])
def test_a_refused_direct_read_is_made_through_the_page_cache(big: tuple[Path, bytes], nth: int) -> None:
    path, raw = big
    plan = FaultPlan(fail_at=[(nth, 22)])  # EINVAL
    reader, file = opened(path, request_bytes=16384, faults=plan)
    needs_direct(reader, file)
    before = reader.extent(file, 700, 9000)
    assert read(reader, file, 0, len(raw)) == raw
    assert len(plan.calls()) > 100
    assert reader.mode(file) == "buffered"
    assert reader.extent(file, 700, 9000) == before
    ((named, why),) = reader.buffered()
    assert named == str(path)
    assert "EINVAL" in why
    assert reader.stats()["buffered_files"] == 1
    if sys.platform == "linux":
        assert not any(flags & os.O_DIRECT for flags in descriptor_flags(path))
    assert not plan.calls()[-1][3]


def test_a_refused_buffered_read_is_an_error(big: tuple[Path, bytes]) -> None:
    reader, file = opened(big[0], threads=1, direct=False, faults=FaultPlan(fail_at=[(1, 22)]))
    with pytest.raises(OSError, match="EINVAL"):
        read(reader, file, 0, 10)


def test_a_file_in_memory_is_read_buffered_and_says_so(place: Path) -> None:
    write_random(place / "x", 5000)
    reader, file = opened(place / "x")
    if str(place).startswith("/dev/shm"):
        assert reader.mode(file) == "buffered"
        assert reader.buffered() == [(str(place / "x"), "it lives in memory")]
    read(reader, file, 0, 5000)


@pytest.mark.skipif(sys.platform != "linux", reason="drop-behind is Linux's")
def test_buffered_reading_leaves_nothing_in_the_page_cache(big: tuple[Path, bytes]) -> None:
    path, raw = big
    with path.open("rb") as file:  # all of it in the cache, and clean
        os.fsync(file.fileno())
        file.read()
        if cached_pages(path) == 0:
            missing("the temporary directory's file system does not show cached pages")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_pages(path):
            missing("the temporary directory's file system keeps cached pages")
    reader, number = opened(path, direct=False)
    assert read(reader, number, 0, len(raw)) == raw
    assert cached_pages(path) == 0


def test_bytes_read_are_the_extents_and_nothing_else(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path, request_bytes=65536)
    asked, planned = 0, 0
    for offset, nbytes in [(0, 100_000), (100_000, 5), (2_000_001, 999_999), (len(raw) - 1, 1)]:
        begin, length = reader.extent(file, offset, nbytes)
        asked += nbytes
        planned += min(begin + length, len(raw)) - begin  # the last block ends with the file
        read(reader, file, offset, nbytes)
    stats = reader.stats()
    assert (stats["bytes_asked"], stats["bytes_read"]) == (asked, planned)
    assert stats["cpu_s"] > 0
    assert stats["busy_s"] > 0
    assert 1 <= stats["in_flight_max"] <= 4


def test_numpy_numbers_are_numbers(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path)
    landing = start(reader, file, 0, 1)[1]
    reader.wait(reader.submit(np.int32(file), np.int64(0), np.int64(1), np.uint64(landing.address), False))
    assert landing.asked() == raw[:1]
