"""Which read goes first, what may run together, what is dropped: events held and counted, no clocks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from reading_files import big, opened, read, start

from lilliput._core import FaultPlan, Reader

__all__ = ["big"]  # a fixture


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
    plan = FaultPlan(alignment=4096)
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
    queued, unread = start(reader, file, 1_000_000, 3 * 65536)
    assert reader.stats()["queued"] > 2
    reader.cancel(queued)
    assert reader.stats()["queued"] == 2
    unread.arena.close()
    with pytest.raises(BufferError):
        landing.arena.close()
    there_when_cancel_returned: list[bytes] = []

    def cancel() -> None:
        reader.cancel(running)
        there_when_cancel_returned.append(landing.asked()[:65536])

    canceller = threading.Thread(target=cancel, daemon=True)
    canceller.start()
    while reader.stats()["queued"]:  # the two that had not started go at once
        pass
    assert not there_when_cancel_returned  # the one that has is still held
    plan.release()
    canceller.join()
    assert there_when_cancel_returned == [raw[:65536]]
    assert [call[1] for call in plan.calls()] == [0]
    landing.arena.close()
    with pytest.raises(ValueError, match="not waited for"):
        reader.wait(running)
    assert read(reader, file, 2_000_000, 10) == raw[2_000_000:2_000_010]


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

    waiter = threading.Thread(target=wait, daemon=True)
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
        while reader.stats()["waited_s"] == 0:  # until the other thread stands in wait
            pass
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt, daemon=True)

    def interrupted_wait() -> None:
        sender.start()
        reader.wait(ticket)

    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background may have been started with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_wait()
    finally:
        signal.signal(signal.SIGINT, former)
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
        signal.alarm(30)  # a reader that waits for threads it does not have must not keep the test waiting
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
        del use, reader  # which must not end threads that are the parent's
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    reader.wait(ticket)
    assert landing.asked() == raw


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_reader_threads_take_no_signals(big: tuple[Path, bytes]) -> None:
    """A signal that a reader thread took would leave the main thread's system call uninterrupted."""
    reader, file = opened(big[0], threads=3)
    read(reader, file, 0, 3_000_000)
    blocked = []
    for task in Path("/proc/self/task").iterdir():
        try:
            text = (task / "status").read_text()
        except OSError:  # a thread that has just ended
            continue
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        if status["Name"] == "lilliput-read":
            blocked.append(int(status["SigBlk"], 16) >> (signal.SIGINT - 1) & 1)
    assert blocked
    assert all(blocked)


def reader_threads() -> set[Path]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            if (task / "comm").read_text() == "lilliput-read\n":
                found.add(task)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads in /proc what threads sleep on")
def test_no_two_idle_threads_sleep_on_one_condition() -> None:
    """Several sleepers on one condition can miss a wake-up for ever: a fault of glibc before 2.41 that comes too rarely to be provoked."""
    others = reader_threads()
    reader = Reader(threads=4)
    while len(mine := reader_threads() - others) < 4:
        os.sched_yield()
    size = 48  # of a condition in glibc, which keeps two words to sleep on
    looks = 0  # at four that sleep, however long the machine takes to let them; on their way they may wait for the lock, all at one place
    while looks < 10_000:
        try:
            told = [(task / "syscall").read_text().split() for task in mine]
        except OSError:
            pytest.skip("this kernel does not say what a thread sleeps on")
        places = sorted(int(words[1], 16) for words in told if len(words) > 1)  # else it is running
        if len(places) == 4:
            looks += 1
            if all(b - a >= size for a, b in pairwise(places)):
                break
        os.sched_yield()
    else:
        pytest.fail(f"four idle threads sleep at {[hex(at) for at in places]}")
    reader.close()
