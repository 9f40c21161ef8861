"""Ctrl-C and SIGTERM. Imports next to nothing: the handlers are in place before numpy and the rest take their half second to load."""

from __future__ import annotations

import signal
from types import FrameType

from lilliput.machine import interrupts

SIGTERM_EXIT = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM arrived."""


def catch_signals() -> None:
    """Ctrl-C once abandons the pass in flight and ends cleanly; a second one stops at once. SIGTERM ends like the first."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupts.deliver(KeyboardInterrupt())

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end has begun: a second one must not disturb the saving
        interrupts.deliver(Terminated())

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, terminate)
