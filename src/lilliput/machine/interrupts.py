"""Ctrl-C, SIGTERM and SIGHUP arrive between any two steps of the program; a few steps belong together.

The handlers of the command line call `deliver`, once for all signals; while a `held` block runs, what it would raise waits for its end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_blocks = 0
_waiting: list[BaseException] = []


def deliver(interrupt: BaseException) -> None:
    """Raise `interrupt` now, or at the end of the block that is held."""
    if not _blocks:
        raise interrupt
    _waiting.append(interrupt)


def take() -> list[BaseException]:
    """What waits, for a held block that wants to know: nobody else will raise it."""
    taken = _waiting[:]
    _waiting.clear()
    return taken


@contextmanager
def held() -> Iterator[None]:
    """A short block that an interrupt must find not begun or complete."""
    global _blocks
    if threading.current_thread() is not threading.main_thread():  # no signal is handled on any other thread
        yield
        return
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        if _waiting and not _blocks:
            raise _waiting.pop()


@contextmanager
def released() -> Iterator[None]:
    """A part of held blocks that may take for ever: an interrupt that arrives in it breaks it off."""
    global _blocks
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer, _blocks = _blocks, 0
    try:
        yield
    finally:
        _blocks = outer
