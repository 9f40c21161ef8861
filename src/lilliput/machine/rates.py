"""How fast this machine is, as far as it was measured: kept in the user's cache directory, for the machine, the device and the way of
computing. `lilliput.bench.rates` measures.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import msgspec

from lilliput import _core
from lilliput.errors import UsageError
from lilliput.machine.cache import keep, kept
from lilliput.machine.costs import Rates
from lilliput.machine.places import cache_directory

KERNELS = 2  # another number for kernels of another speed: what was measured with the old ones is measured again
KEPT_DAYS = 30
LARGEST = 10_000  # bytes of a file
SLOWEST, FASTEST, MOST_MORE = 1e3, 1e15, 1e3  # bytes per second, and what a further token costs: a note beyond is nobody's measurement


class _Kept(msgspec.Struct):
    when: float  # seconds since 1970
    rates: Rates


def known_rates(files: Sequence[Path], kind: str, machine: tuple[int, str] | None = None) -> Rates | None:
    """What was measured lately for the device of the files and `machine` (threads, instruction set; else those in use), or None."""
    try:
        raw = kept(_place(files, kind, machine), LARGEST)
        found = msgspec.json.decode(raw, type=_Kept) if raw is not None else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UsageError):  # UsageError: no cache directory
        return None
    if found is None:
        return None
    r = found.rates
    speeds = (r.disk_bytes_per_s, r.trunk_bytes_per_s, r.expert_bytes_per_s)
    sound = all(SLOWEST <= speed <= FASTEST for speed in speeds) and 0 <= r.more_tokens <= MOST_MORE and r.source.isprintable()
    return r if sound and abs(time.time() - found.when) < KEPT_DAYS * 86400 else None


def keep_rates(files: Sequence[Path], kind: str, rates: Rates) -> None:
    """For the next time; where the cache cannot be written, or there is no place for one, the next time measures again."""
    with suppress(UsageError):
        keep(_place(files, kind), [msgspec.json.encode({"when": time.time(), "rates": asdict(rates)})])


def largest_file(files: Sequence[Path]) -> Path:
    return max(files, key=lambda file: file.stat().st_size)


def _place(files: Sequence[Path], kind: str, machine: tuple[int, str] | None = None) -> Path:
    """One file per machine, processor, way of computing and device."""
    threads, isa = machine or (_core.threads(), _core.isa())
    what = [KERNELS, platform.node(), _processor(), isa, threads, kind, largest_file(files).stat().st_dev]
    return cache_directory() / f"rates-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.machine())
