"""How fast this machine is, as far as it was measured: kept in the user's cache directory, for the machine, the device and the way of
computing. `lilliput.bench.rates` measures.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from lilliput import _core
from lilliput.errors import InputError, UsageError
from lilliput.machine.cache import keep
from lilliput.machine.costs import Rates
from lilliput.machine.places import cache_directory
from lilliput.machine.small_files import read_small

KERNELS = 2  # another number for kernels of another speed: what was measured with the old ones is measured again
KEPT_DAYS = 30
LARGEST = 65536  # bytes of a note
SLOWEST, FASTEST, MOST_MORE = 1e3, 1e15, 1e3  # bytes per second, and what a further token costs: a note beyond is nobody's measurement


class _Kept(msgspec.Struct):
    when: float  # seconds since 1970
    rates: Rates


def known_rates(files: Sequence[Path], kind: str) -> Rates | None:
    """What was measured lately for these files' device and the way we compute now; None where nothing was."""
    try:
        kept = msgspec.json.decode(read_small(_place(files, kind), LARGEST) or b"", type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError, UsageError):  # UsageError: no cache directory
        return None
    r = kept.rates
    speeds = (r.disk_bytes_per_s, r.trunk_bytes_per_s, r.expert_bytes_per_s)
    sound = all(SLOWEST <= speed <= FASTEST for speed in speeds) and 0 <= r.more_tokens <= MOST_MORE and r.source.isprintable()
    return r if sound and abs(time.time() - kept.when) < KEPT_DAYS * 86400 else None


def keep_rates(files: Sequence[Path], kind: str, rates: Rates) -> None:
    """For the next time; where the cache cannot be written the next time measures again."""
    keep(_place(files, kind), [msgspec.json.encode({"when": time.time(), "rates": asdict(rates)})])


def largest_file(files: Sequence[Path]) -> Path:
    return max(files, key=lambda file: file.stat().st_size)


def _place(files: Sequence[Path], kind: str) -> Path:
    """One file per machine, processor, way of computing and device."""
    what = [KERNELS, platform.node(), _processor(), _core.isa(), _core.threads(), kind, largest_file(files).stat().st_dev]
    return cache_directory() / f"rates-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.json"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.machine())
