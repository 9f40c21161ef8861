"""A processor with other work: a process that keeps one of ours busy while it is let."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from lilliput.errors import UsageError

LOOP = "while True: pass"


class BusyCore:
    """A loop in a process of its own, on the first processor this one may use; it runs only inside `working`. Linux only: UsageError."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise UsageError("--busy-core: needed Linux, found a system that does not tie a process to a processor")
        self._process = subprocess.Popen([sys.executable, "-S", "-c", LOOP])
        os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})
        self._process.send_signal(signal.SIGSTOP)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> BusyCore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()


def in_proportion(threads: int) -> float:
    """How much longer work on as many processors as threads takes when one of them is shared with one other process."""
    return threads / (threads - 0.5)
