"""A processor with other work: a process that keeps one of ours busy while it is let."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from lilliput.errors import LilliputError, UsageError

# A byte on its input starts it, the next one stops it and is answered; the end of its input, also when this process is killed, ends it.
LOOP = """
import os, select
while os.read(0, 1):
    while not select.select([0], [], [], 0)[0]:
        pass
    if os.read(0, 1):
        os.write(1, b".")
"""


class BusyCore:
    """A loop in a process of its own, on the first processor this one may use; it runs only inside `working`. Linux only: UsageError."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise UsageError("--busy-core: needed Linux, found a system that does not tie a process to a processor")
        command = [sys.executable, "-S", "-c", LOOP]
        # In a session of its own: Ctrl-C is for the one that measures.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})

    @contextmanager
    def working(self) -> Iterator[None]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b".")
        except (OSError, ValueError) as error:
            raise LilliputError("--busy-core: the process that keeps a processor busy has ended: start again") from error
        try:
            yield
        finally:
            with suppress(OSError, ValueError):  # it has ended: the next round says so
                self._process.stdin.write(b".")
                self._process.stdout.read(1)

    def __enter__(self) -> BusyCore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()


def in_proportion(threads: int) -> float:
    """How much longer work on as many processors as threads takes when one of them is shared with one other process."""
    return threads / (threads - 0.5)
