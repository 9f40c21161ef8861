"""Threads for a job, all of them there before it begins.

An interrupt finds none of the steps here half done: one that arrives while a thread is being started or waited for would leave the
locks of Python's own pool behind in a state that nothing expects.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from types import TracebackType
from typing import ParamSpec, TypeVar

from lilliput.errors import DoesNotFitError
from lilliput.machine.interrupts import held

P = ParamSpec("P")
T = TypeVar("T")

BETWEEN_SIGNALS = 0.1  # seconds


class Workers:
    """`count` threads. A context manager: leaving it waits for what was begun, and on an error drops the rest.

    `what` they are for is said in the DoesNotFitError where so many cannot be started.
    """

    def __init__(self, count: int, what: str) -> None:
        self._pool = ThreadPoolExecutor(count, what)
        started, go = 0, Event()
        with held():
            try:
                while started < count:
                    self._pool.submit(go.wait)  # nobody is free for the next: it gets a thread of its own
                    started += 1
            except RuntimeError as error:
                go.set()
                self._pool.shutdown(cancel_futures=True)
                raise DoesNotFitError(
                    f"{what}: needed {count} threads, and only {started} could be had ({error}): use fewer (`--threads`), or raise the "
                    "limit of processes or of address space (`ulimit -u`, `ulimit -v`, the container's number of processes)"
                ) from error
            go.set()

    def submit(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        with held():
            return self._pool.submit(work, *arguments, **named)

    def close(self, *, drop: bool) -> None:
        """Wait for what was begun, and unless it is to be dropped for what was not."""
        with held():
            self._pool.shutdown(cancel_futures=drop)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(drop=kind is not None)


def result_of(future: Future[T]) -> T:
    """What came of it, when it has come."""
    while True:
        with held():
            if wait([future], BETWEEN_SIGNALS).done:
                return future.result()
