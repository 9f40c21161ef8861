"""The reader: the right bytes, nothing beside them, past the page cache, in the right order."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import missing
from hypothesis import given, settings
from hypothesis import strategies as st
from lilliput._core import Arena, FaultPlan, Reader
from reading_files import read, start, write_random

SIZES = (1, 511, 512, 4095, 4096, 4097, 70_001, 1_000_003)
BLOCK = 4096


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


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("reader") / "big.bin"
    return path, write_random(path, 3_000_017, seed=1)


def opened(path: Path, **options: object) -> tuple[Reader, int]:
    reader = Reader(**options)
    return reader, reader.add(path, path.stat().st_size)


def needs_direct(reader: Reader, file: int) -> None:
    if reader.mode(file) != "direct":
        missing("the temporary directory's file system has no direct reads")


def descriptor_flags(path: Path) -> list[int]:
    """The open flags of this process's descriptors of a file."""
    flags = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == str(path):
                lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
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


@settings(max_examples=60, deadline=None)
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
    cuts = [0, 5, 123_457, 123_458, 1_000_000, 2_999_000, len(raw)]
    pending = [(a, b, start(reader, file, a, b - a, urgent=i % 2 == 0)) for i, (a, b) in enumerate(itertools.pairwise(cuts))]
    for a, b, (ticket, landing) in pending:
        reader.wait(ticket)
        assert landing.asked() == raw[a:b]
        assert landing.guards_intact()
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
        if resident_pages(path) == 0:
            missing("the temporary directory's file system does not show cached pages")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_pages(path):
            missing("the temporary directory's file system keeps cached pages")
    reader, number = opened(path, direct=False)
    assert read(reader, number, 0, len(raw)) == raw
    assert resident_pages(path) == 0


def resident_pages(path: Path) -> int:
    """Pages of a file in the page cache."""
    import ctypes
    import mmap

    pages = -(-path.stat().st_size // mmap.PAGESIZE)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        seen = (ctypes.c_ubyte * pages)()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), seen) == 0
    return sum(page & 1 for page in seen)


# ---- errors


def test_an_error_names_file_offset_and_errno(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path, threads=1, request_bytes=65536, faults=FaultPlan(fail_at=[(3, 5)]))
    ticket, _landing = start(reader, file, 0, len(raw))
    with pytest.raises(OSError, match="EIO") as caught:
        reader.wait(ticket)
    assert caught.value.errno == 5
    assert caught.value.filename == str(path)
    assert f"at offset {2 * 65536} of {len(raw)}" in str(caught.value)
    assert read(reader, file, 100, 1000) == raw[100:1100]  # one bad request ends one ticket
    with pytest.raises(ValueError, match="not waited for"):
        reader.wait(ticket)


def test_after_an_error_the_rest_of_the_ticket_is_not_read(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan(fail_at=[(1, 5)])
    reader, file = opened(big[0], threads=1, request_bytes=65536, faults=plan)
    ticket, _landing = start(reader, file, 0, 1_000_000)
    with pytest.raises(OSError, match="EIO"):
        reader.wait(ticket)
    assert len(plan.calls()) == 1


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("left", [0, 100_000, 131_072, 999_999])
def test_truncated_while_in_use(place: Path, direct: bool, left: int) -> None:
    path = place / "shrinks"
    raw = write_random(path, 1_000_000)
    reader, file = opened(path, direct=direct)
    assert read(reader, file, 999_000, 1000) == raw[-1000:]
    os.truncate(path, left)
    with pytest.raises(OSError, match=rf"truncated while in use: needed 1000000 bytes, found {left}") as caught:
        read(reader, file, left // 2, 1_000_000 - left // 2)
    assert caught.value.filename == str(path)


def test_a_replaced_or_deleted_file_is_still_the_one_that_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x"
    raw = write_random(path, 100_000)
    reader, file = opened(path)
    write_random(tmp_path / "y", 100_000, seed=9)
    (tmp_path / "y").rename(path)
    assert read(reader, file, 0, 100_000) == raw
    path.unlink()
    assert read(reader, file, 5, 5000) == raw[5:5005]


def test_files_that_cannot_be_added(tmp_path: Path) -> None:
    reader = Reader(threads=1)
    with pytest.raises(FileNotFoundError, match="ENOENT") as caught:
        reader.add(tmp_path / "nowhere", 10)
    assert caught.value.filename == str(tmp_path / "nowhere")
    write_random(tmp_path / "x", 10)
    with pytest.raises(ValueError, match=r"x: needed 11 bytes, found 10"):
        reader.add(tmp_path / "x", 11)
    with pytest.raises(ValueError, match="regular file"):
        reader.add(tmp_path, 0)
    assert reader.add(tmp_path / "x", 10) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has only UTF-8 names")
def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.bin")
    raw = write_random(path, 100)
    reader, file = opened(path, direct=False, faults=FaultPlan(fail_at=[(2, 5)]), threads=1)
    assert read(reader, file, 0, 100) == raw
    assert reader.buffered() == [(str(path), "asked for")]
    with pytest.raises(OSError, match="EIO") as caught:
        read(reader, file, 0, 100)
    assert caught.value.filename == str(path)


def test_arguments_that_make_no_sense(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path, threads=1)
    arena = Arena(1 << 20)
    for offset, nbytes in [(0, len(raw) + 1), (len(raw), 1), (len(raw) + 1, 1), (2**63, 2**63), (1, 2**64 - 1)]:
        with pytest.raises(ValueError, match=str(path)):
            reader.submit(file, offset, nbytes, arena.address, False)
    with pytest.raises(ValueError, match="nbytes"):
        reader.extent(file, 0, 0)
    for number in (-1, 1):
        with pytest.raises(ValueError, match="file: needed a number below 1"):
            reader.extent(number, 0, 1)
    with pytest.raises(ValueError, match="address: needed a multiple"):
        reader.submit(file, 0, 100, arena.address + 8, False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, (1 << 20) + 1, arena.address, False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, 100, arena.address + (1 << 20), False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, 100, np.zeros(1 << 16, np.uint8).ctypes.data, False)
    with pytest.raises(ValueError, match="ticket"):
        reader.cancel(77)
    for threads in (0, 257):
        with pytest.raises(ValueError, match="threads"):
            Reader(threads=threads)
    assert reader.stats()["bytes_asked"] == 0


# ---- order, overlap, cancelling: events held and counted, no clocks


def test_urgent_reads_overtake_read_ahead(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan()
    reader, file = opened(big[0], threads=1, faults=plan)
    plan.hold()
    tickets = []
    for i, urgent in enumerate([False, False, False, True, False, True]):
        tickets.append(start(reader, file, i * 65536, 1000, urgent=urgent))
        if i == 0:
            plan.await_calls(1)  # the only thread is on its way with the first
    assert len(plan.calls()) == 1
    plan.release()
    for ticket, _landing in tickets:
        reader.wait(ticket)
    assert [call[1] // 65536 for call in plan.calls()] == [0, 3, 5, 1, 2, 4]


def test_requests_of_one_ticket_are_in_flight_together(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan()
    reader, file = opened(big[0], threads=4, request_bytes=65536, faults=plan)
    plan.hold()
    ticket, _landing = start(reader, file, 0, 6 * 65536)
    plan.await_calls(4)
    assert sorted(call[1] for call in plan.calls()) == [0, 65536, 131072, 196608]
    assert not reader.ready(ticket)
    plan.release()
    reader.wait(ticket)
    assert reader.stats()["in_flight_max"] == 4
    assert reader.stats()["requests"] == 6


def test_a_ticket_is_cut_into_equal_requests(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan(alignment=BLOCK)
    reader, file = opened(big[0], threads=1, request_bytes=1 << 20, faults=plan)
    read(reader, file, 10_000, 1_200_000)
    assert [call[1:3] for call in plan.calls()] == [(8192, 602_112), (610_304, 602_112)]


def test_what_was_read_at_once_is_not_waited_for(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan()
    reader, file = opened(big[0], faults=plan)
    ticket, _landing = start(reader, file, 0, 1000)
    plan.await_calls(1)
    while not reader.ready(ticket):
        pass
    assert reader.wait(ticket) == 0.0
    assert reader.stats()["waited_s"] == 0.0


def test_cancel_drops_what_is_queued_and_waits_for_what_is_in_flight(big: tuple[Path, bytes]) -> None:
    path, raw = big
    plan = FaultPlan()
    reader, file = opened(path, threads=1, request_bytes=65536, faults=plan)
    plan.hold()
    running, landing = start(reader, file, 0, 3 * 65536)
    plan.await_calls(1)
    queued, _unread = start(reader, file, 1_000_000, 3 * 65536)
    reader.cancel(queued)
    landing.arena.array()  # a view that goes at once
    with pytest.raises(BufferError):
        landing.arena.close()
    returned = threading.Event()

    def cancel() -> None:
        reader.cancel(running)
        returned.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    assert not reader.ready(running)
    assert not returned.is_set()  # its first request is still held
    plan.release()
    canceller.join()
    assert read(reader, file, 2_000_000, 10) == raw[2_000_000:2_000_010]
    assert [call[1] for call in plan.calls()[:1]] == [0]
    assert len(plan.calls()) == 2  # one request of the first ticket, none of the second, one of the third
    landing.arena.close()
    with pytest.raises(ValueError, match="not waited for"):
        reader.wait(running)


def test_close_ends_waiting_and_drops_the_queue(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan()
    reader, file = opened(big[0], threads=1, faults=plan)
    plan.hold()
    _first, _landing = start(reader, file, 0, 100)
    plan.await_calls(1)
    second, landing = start(reader, file, 0, 100)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            reader.wait(second)
        except RuntimeError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    reader.close()
    waiter.join()
    assert "closed" in str(raised[0])
    assert len(plan.calls()) == 1
    landing.arena.close()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.submit(file, 0, 100, _landing.address, False)
    with pytest.raises(RuntimeError, match="closed"):
        reader.add(big[0], 3_000_017)


def test_dropping_a_reader_with_reads_in_flight(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan()
    reader, file = opened(big[0], threads=2, request_bytes=65536, faults=plan)
    plan.hold()
    _ticket, landing = start(reader, file, 0, 1_000_000)
    plan.await_calls(2)
    del reader
    landing.arena.close()


def test_ctrl_c_ends_waiting(big: tuple[Path, bytes]) -> None:
    path, raw = big
    plan = FaultPlan()
    reader, file = opened(path, faults=plan)
    plan.hold()
    ticket, landing = start(reader, file, 0, 1000)

    def interrupt() -> None:
        plan.await_calls(1)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)

    def interrupted_wait() -> None:
        sender.start()
        reader.wait(ticket)

    with pytest.raises(KeyboardInterrupt):
        interrupted_wait()
    sender.join()
    plan.release()
    reader.wait(ticket)
    assert landing.asked() == raw[:1000]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path)
    ticket, landing = start(reader, file, 0, len(raw))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
        child = os.fork()
    if child == 0:
        told = 0
        for use in (
            lambda: reader.wait(ticket),
            lambda: reader.ready(ticket),
            reader.stats,
            lambda: reader.add(path, len(raw)),
            reader.close,
        ):
            try:
                use()
            except RuntimeError as error:
                told += "after the fork" in str(error)
        del reader
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    reader.wait(ticket)
    assert landing.asked() == raw


# ---- statistics


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
