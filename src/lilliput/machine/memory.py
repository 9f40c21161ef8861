"""How much memory is safely free, how hard the system is looking for memory, and how sizes are written.

Free is the smallest of what the kernel calls available, what every control group up to the root still grants (versions 1 and 2),
and what the process's own limits leave. Page cache that can be dropped without swapping counts as free: after a model has been
read once, much of the memory is full of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from pathlib import Path

import psutil

from lilliput.errors import UsageError, shown
from lilliput.machine.cgroups import limiting_directories, text_of

LONGEST_SIZE = 60  # characters of a size: Python turns no more than 4300 digits into a number
UNLIMITED = 1 << 60  # version 1 writes 9223372036854771712 (the largest whole number of pages) for no limit: anything that large is none

GB = 10**9
PRESETS = {"laptop": 8 * GB, "desktop": 32 * GB, "workstation": 96 * GB, "server": 128 * GB, "max": 224 * GB}

UNITS = {
    **{"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40},
}


@dataclass(frozen=True)
class Free:
    """Bytes that one authority still grants. `name` says which, for messages."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Pressure:
    """Percent of the last ten seconds in which some or all tasks waited for memory (PSI); `name` is the file it was read from."""

    name: str
    some: float
    full: float


def tightest(root: Path = Path("/")) -> Free:
    """The authority that grants least. `root` is a made-up machine in tests."""
    return min(free_memory(root), key=lambda free: free.nbytes)


def free_memory(root: Path = Path("/")) -> list[Free]:
    """What every authority that has a say still grants, never less than 0: the kernel, control groups (innermost first), process limits."""
    groups = (_group(directory, root) for directory in limiting_directories("memory", root))
    found = [system_memory(root), *(free for group in groups for free in group), *_process(root)]
    return [Free(free.name, max(0, free.nbytes)) for free in found]


def memory_pressure(root: Path = Path("/")) -> Pressure | None:
    """The highest pressure of the system and of every control group we are in; None where the kernel does not tell."""
    files = [root / "proc/pressure/memory", *(group / "memory.pressure" for group in limiting_directories("memory", root))]
    found = [pressure for file in files if (pressure := _pressure(file, root)) is not None]
    return max(found, key=lambda pressure: (pressure.full, pressure.some), default=None)


def parse_size(text: str, option: str) -> int:
    """`8GB`, `500MB`, `1.5 GB`, `2GiB` → bytes, rounded down; GB = 10^9, GiB = 2^30. Raises UsageError naming `option`."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text) if len(text) <= LONGEST_SIZE else None
    factor = UNITS.get(found[2].upper()) if found else None
    if found is None or factor is None:
        raise UsageError(f"{option}: needed a number and a unit, such as 8GB, 1.5GB, 500MB or 2GiB (GB = 10^9 bytes), found {shown(text)}")
    return check_size(int(Fraction(found[1]) * factor), option, text)


def check_size(nbytes: object, option: str, given: object = None) -> int:
    """A number of bytes that can be planned with. Raises UsageError naming `option`, and what was `given` for it."""
    if not isinstance(nbytes, Integral) or isinstance(nbytes, bool) or not 0 < int(nbytes) < UNLIMITED:
        found = shown(nbytes if given is None else given)
        raise UsageError(f"{option}: needed a size above zero and below {UNLIMITED // 10**15} PB, found {found}")
    return int(nbytes)


def format_size(nbytes: int) -> str:
    """A size as people write it, and as `parse_size` reads it: 8GB, 1.5GB, 17.5MB. At most three digits after the point, rounded down."""
    unit = next((name for name in ("TB", "GB", "MB", "KB") if nbytes >= UNITS[name]), "B")
    thousandths = nbytes * 1000 // UNITS[unit]
    return f"{thousandths // 1000}.{thousandths % 1000:03d}".rstrip("0").rstrip(".") + unit


def about(nbytes: float) -> str:
    """A size for reading: three digits and a unit, 83.3 GB, 412 KB."""
    unit = next((name for name in ("TB", "GB", "MB", "KB") if nbytes >= 0.9995 * UNITS[name]), "B")
    value = nbytes / UNITS[unit]
    return f"{value:.0f} {unit}" if value >= 99.95 or unit == "B" else f"{value:#.3g} {unit}"


def chosen_budget(memory: str | None, preset: str | None) -> int | None:
    """The budget that `--memory` or `--preset` asks for; None if neither is given. Raises UsageError for both, and for unknown presets."""
    if memory is not None and preset is not None:
        raise UsageError(f"needed one of --memory and --preset, found both (--memory {memory} --preset {preset})")
    if memory is not None:
        return parse_size(memory, "--memory")
    if preset is None:
        return None
    if preset not in PRESETS:
        known = ", ".join(f"{name} ({format_size(nbytes)})" for name, nbytes in PRESETS.items())
        raise UsageError(f"--preset: needed one of {known}, found {preset!r}")
    return PRESETS[preset]


def system_memory(root: Path = Path("/")) -> Free:
    """What the whole machine has left, whatever groups this process is in."""
    fields = _fields(root / "proc/meminfo")
    kilobytes = fields.get("MemAvailable", fields.get("MemFree"))  # kernels before 3.14 do not say what is available
    if kilobytes is not None:
        return Free("MemAvailable", kilobytes * 1024)
    return Free("available memory", int(psutil.virtual_memory().available))


def _group(directory: Path, root: Path) -> list[Free]:
    """The limits of one control group. File pages, active or not, are page cache that the kernel takes back: not counted as used."""
    stat, name = _fields(directory / "memory.stat"), "/" + str(directory.relative_to(root))
    used = _number(directory / "memory.current") or _number(directory / "memory.usage_in_bytes") or 0
    # Version 1 has both numbers, and `total` is the one that includes the groups below.
    cache = sum(stat.get(f"total_{kind}", stat.get(kind, 0)) for kind in ("inactive_file", "active_file"))
    found = []
    for limit in ("memory.max", "memory.high", "memory.limit_in_bytes"):  # above `high` the kernel throttles to a standstill
        number = _number(directory / limit)
        if number is not None and number < UNLIMITED:
            found.append(Free(f"{name}/{limit}", number - max(0, used - cache)))
    return found


def _process(root: Path) -> list[Free]:
    """RLIMIT_AS and RLIMIT_DATA, less what this process has of each."""
    status = _fields(root / "proc/self/status")
    found = []
    for name, title, used in (("RLIMIT_AS", "Max address space", "VmSize"), ("RLIMIT_DATA", "Max data size", "VmData")):
        soft = re.search(rf"^{title}\s+(\d+)\s", text_of(root / "proc/self/limits"), re.MULTILINE)
        if soft and int(soft[1]) < UNLIMITED:
            found.append(Free(f"{name} (ulimit)", int(soft[1]) - status.get(used, 0) * 1024))
    return found


def _pressure(file: Path, root: Path) -> Pressure | None:
    shares = dict(re.findall(r"^(some|full) avg10=(\d+(?:\.\d+)?)", text_of(file), re.MULTILINE))
    return Pressure("/" + str(file.relative_to(root)), float(shares["some"]), float(shares.get("full", "0"))) if "some" in shares else None


def _fields(file: Path) -> dict[str, int]:
    """Lines `name 123`, `name: 123 kB` → the numbers."""
    return {name: int(number) for name, number in re.findall(r"^(\w+):?\s+(\d+)\b", text_of(file), re.MULTILINE)}


def _number(file: Path) -> int | None:
    """The whole number a small file holds; None for an absent file and for `max`."""
    text = text_of(file).strip()
    return int(text) if text.isascii() and text.isdigit() else None
