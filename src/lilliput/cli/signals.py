"""Ctrl-C, SIGTERM and SIGHUP. Imports next to nothing: the handlers are in place before numpy takes its half second to load."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from lilliput.machine import interrupts

SAME = 1.0  # seconds in which a second SIGTERM is taken for the first: `timeout` sends it to its child and to the child's group


class Terminated(BaseException):
    """SIGTERM arrived, or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__("terminated" if number == signal.SIGTERM else "hung up")
        self.exit_code = 128 + number


def catch_signals() -> None:
    """The first signal abandons the pass in flight and ends cleanly; after it a Ctrl-C or a SIGTERM stops at once.

    SIGHUP may come several times when a terminal goes (from the shell, and from the kernel): after a first signal it is ignored, and from
    the beginning where whoever started us (`nohup`) ignores it.
    """
    first: float | None = None

    def begin_end(number: int) -> None:
        nonlocal first
        first = time.monotonic()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if hangs_up:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interrupts.deliver(KeyboardInterrupt() if number == signal.SIGINT else Terminated(number))

    def caught(number: int, _frame: FrameType | None) -> None:
        if first is None:
            begin_end(number)
        elif number == signal.SIGTERM and time.monotonic() - first >= SAME:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])):
        signal.signal(number, caught)
