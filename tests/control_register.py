"""Another rounding mode, or subnormals flushed, in the caller's thread: what a library may have left behind."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable

import pytest

MODES = {"flush subnormals": 0x8040, "round down": 0x2000, "round to zero": 0x6000}  # bits of MXCSR


def under_mode(name: str, body: Callable[[], object]) -> None:
    """Run `body` in this mode, and check that it is still set afterwards."""
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        pytest.skip("sets the x86-64 control register through glibc")
    libm = ctypes.CDLL("libm.so.6")
    before, changed = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    libm.fegetenv(before)
    libm.fegetenv(changed)
    control = int.from_bytes(changed.raw[28:32], "little") & ~0x6000 | MODES[name]
    changed[28:32] = control.to_bytes(4, "little")
    assert libm.fesetenv(changed) == 0
    try:
        body()
    finally:
        after = ctypes.create_string_buffer(64)
        libm.fegetenv(after)
        libm.fesetenv(before)
    assert after.raw[28:30] == changed.raw[28:30], "the caller's mode was not put back"
