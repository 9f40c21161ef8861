"""How fast a disk delivers in the shapes that the engine reads in: the tape's pieces in sequence, experts all over the place.

Only what came from the disk counts. The kernel says how many bytes of a run were fetched from storage; a run that memory answered,
in whole or in part, is an error and no number. (A cache inside the disk, or of the host under a virtual disk, cannot be seen from
here: files much larger than it are the only protection.)
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import stat
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from lilliput._core import Arena, Reader
from lilliput.errors import LilliputError, UsageError

PIECE = 4 << 20  # the tape's
EXPERT = 17_547_264  # K3's, wherever it lies
PIECES_AHEAD = 16
EXPERTS_AT_ONCE = 16  # one token, one layer: all of them before any of the next layer's
THREADS = (1, 2, 4, 8)

LEAST_FILE = 64_000_000  # smaller files of a directory are passed over
LEAST_TOTAL = 1_000_000_000  # less would measure some cache on the way
RUN_BYTES = 1_000_000_000
FROM_DISK = 0.98  # of a run's bytes; the rest allows for a stray cached page

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class DataFile:
    path: Path
    size: int
    device: int


@dataclass(frozen=True, slots=True)
class Shape:
    """`name` is "pieces", "experts", or "plain": one thread of plain `pread`, what the others are compared with."""

    name: str
    nbytes: int
    threads: int
    at_once: int


SHAPES = (
    Shape("plain", PIECE, 1, 1),
    *(Shape("pieces", PIECE, threads, PIECES_AHEAD) for threads in THREADS),
    *(Shape("experts", EXPERT, threads, EXPERTS_AT_ONCE) for threads in THREADS),
)


@dataclass(slots=True)
class Run:
    """One measurement: `nbytes` asked for, `seconds` of wall time, `cpu` seconds of the reading threads, `fetched` bytes from storage."""

    nbytes: int
    read: int
    seconds: float
    cpu: float
    fetched: int


@dataclass(slots=True)
class Device:
    """Files of one device, and where the next sequential run starts, so that no run reads what the one before it has just read."""

    files: list[DataFile]
    position: int = 0
    modes: set[str] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)
    alignment: int = 0

    @property
    def nbytes(self) -> int:
        return sum(file.size for file in self.files)

    def sequence(self, nbytes: int, total: int) -> Iterator[tuple[int, int]]:
        """(file number, offset) of extents of `nbytes`, one after the other, from where the last sequence ended; round and round."""
        places = [(number, offset) for number, file in enumerate(self.files) for offset in range(0, file.size - nbytes + 1, nbytes)]
        for _ in range(max(total // nbytes, 1)):
            yield places[self.position % len(places)]
            self.position += 1

    def scattered(self, nbytes: int, total: int, seed: int) -> Iterator[tuple[int, int]]:
        """(file number, offset) of extents of `nbytes`, anywhere, as unaligned as experts are."""
        chance = random.Random(seed)
        numbers = [number for number, file in enumerate(self.files) if file.size >= nbytes]
        weights = [self.files[number].size for number in numbers]
        for _ in range(max(total // nbytes, 1)):
            (number,) = chance.choices(numbers, weights)
            yield number, chance.randrange(self.files[number].size - nbytes + 1)


def measure_disk(
    path: Path | str,
    *,
    shapes: Sequence[Shape] = SHAPES,
    repeats: int = 3,
    run_bytes: int = RUN_BYTES,
    least_file: int = LEAST_FILE,
    least_total: int = LEAST_TOTAL,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Measure FILE, or the large files of DIR; one report per device they lie on, in order of the bytes found there.

    A report has `files`, `bytes`, `mode` ("direct" or "buffered", with `why_buffered`), `alignment`, and `shapes`: for each the bytes per
    extent, reader threads, extents at once, `gb_per_s` (median, lowest, highest of `repeats` runs), `cpu_s_per_gb`, and `ratio`, its median
    against that of `plain`. GB = 10^9 bytes. Repeats are interleaved, so that a busy moment does not fall on one shape.

    Raises UsageError when there is too little to read, LilliputError when reads were answered by memory.
    """
    if repeats < 1:
        raise UsageError(f"--repeats: needed 1 or more, found {repeats}")
    needs_count_of_fetched_bytes()
    devices = find_devices(Path(path), least_file, least_total)
    steps, done = len(devices) * repeats * len(shapes), 0
    reports = []
    for device in devices:
        runs: dict[Shape, list[Run]] = defaultdict(list)
        for repeat in range(repeats):
            for shape in shapes:
                runs[shape].append(_checked(_run(device, shape, run_bytes, repeat), device))
                done += 1
                if progress:
                    progress(done, steps)
        reports.append(_report(device, runs))
    return reports


def find_devices(path: Path, least_file: int = LEAST_FILE, least_total: int = LEAST_TOTAL) -> list[Device]:
    """FILE, or the files directly in DIR that are large and not sparse, by device; the device with most bytes first.

    Raises UsageError when no device holds enough.
    """
    passed_over: list[str] = []
    found: dict[int, list[DataFile]] = defaultdict(list)
    try:
        candidates = sorted(path.iterdir()) if path.is_dir() else [path]
        for candidate in candidates:
            status = candidate.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            if status.st_size < least_file:
                if not path.is_dir():
                    passed_over.append(f"{candidate.name} has {status.st_size:,} bytes")
            elif status.st_blocks * 512 < 0.95 * status.st_size:
                passed_over.append(f"{candidate.name} is sparse ({status.st_blocks * 512:,} of {status.st_size:,} bytes on disk)")
            else:
                found[status.st_dev].append(DataFile(candidate, status.st_size, status.st_dev))
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot be examined: {error.strerror}") from error
    devices = [Device(sorted(files, key=lambda file: -file.size)) for files in found.values()]
    enough = [device for device in devices if device.nbytes >= least_total]
    if not enough:
        most = max((device.nbytes for device in devices), default=0)
        because = f" ({'; '.join(passed_over[:3])}{'; ...' if len(passed_over) > 3 else ''})" if passed_over else ""
        where = " directly in it, not in directories below" if path.is_dir() else ""
        raise UsageError(
            f"{path}: needed {least_total:,} bytes of data in files of {least_file:,} or more{where}, found {most:,}{because}: "
            f"less would measure a cache, not the disk; make a file with `head -c {4 * least_total} /dev/urandom > FILE`"
        )
    return sorted(enough, key=lambda device: -device.nbytes)


def _run(device: Device, shape: Shape, run_bytes: int, repeat: int) -> Run:
    # Each run takes what is new to it, but never more than there is.
    total = min(run_bytes, device.nbytes)
    if shape.name == "experts":
        places = list(device.scattered(shape.nbytes, total, seed=repeat * len(THREADS) + shape.threads))
    else:
        places = list(device.sequence(shape.nbytes, total))
    for file in device.files:
        _forget_cached(file.path)
    if shape.name == "plain":
        return _run_plain(device, shape, places)
    return _run_reader(device, shape, places)


def _run_reader(device: Device, shape: Shape, places: Sequence[tuple[int, int]]) -> Run:
    reader = Reader(threads=shape.threads)
    try:
        numbers = [reader.add(file.path, file.size) for file in device.files]
        device.alignment = max(reader.alignment(number) for number in numbers)
        slot = -(-(shape.nbytes + 2 * device.alignment) // device.alignment) * device.alignment
        arena = Arena(slot * shape.at_once, touch=os.cpu_count() or 1)
        # Pieces follow each other through a ring; the experts of a layer are asked for together, when its router has decided.
        in_layers = shape.name == "experts"
        before, start = fetched_bytes(), time.perf_counter()
        pending: list[int] = []
        for i, (file, offset) in enumerate(places):
            if len(pending) == shape.at_once:
                for ticket in pending if in_layers else pending[:1]:
                    reader.wait(ticket)
                pending = [] if in_layers else pending[1:]
            address = arena.address + i % shape.at_once * slot
            pending.append(reader.submit(numbers[file], offset, shape.nbytes, address, in_layers))
        for ticket in pending:
            reader.wait(ticket)
        seconds, fetched = time.perf_counter() - start, fetched_bytes() - before
        stats = reader.stats()
        device.modes.update(reader.mode(number) for number in numbers)
        device.reasons.update(reader.buffered())
    finally:
        reader.close()
    return Run(len(places) * shape.nbytes, stats["bytes_read"], seconds, stats["cpu_s"], fetched)


def _run_plain(device: Device, shape: Shape, places: Sequence[tuple[int, int]]) -> Run:
    """One `pread` after the other, past the page cache where the file system allows, into as much memory as the pieces' ring: the same
    4 MB again and again would stay in the processor's cache and be filled a third faster than any engine's memory."""
    arena = Arena(shape.nbytes * PIECES_AHEAD, touch=1)
    buffer = arena.array().data
    descriptors = [open_direct(file.path) for file in device.files]
    try:
        before, cpu, start = fetched_bytes(), time.thread_time(), time.perf_counter()
        read = 0
        for i, (file, offset) in enumerate(places):
            at = i % PIECES_AHEAD * shape.nbytes
            read += pread_direct(descriptors[file], buffer[at : at + shape.nbytes], offset)
        seconds, cpu, fetched = time.perf_counter() - start, time.thread_time() - cpu, fetched_bytes() - before
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return Run(len(places) * shape.nbytes, read, seconds, cpu, fetched)


def open_direct(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def pread_direct(descriptor: int, buffer: memoryview, offset: int) -> int:
    try:
        return os.preadv(descriptor, [buffer], offset)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)  # as the reader does
        return os.preadv(descriptor, [buffer], offset)


def _checked(run: Run, device: Device) -> Run:
    if run.fetched >= FROM_DISK * run.read:
        return run
    first = device.files[0].path
    why = next(iter(device.reasons.values()), "")
    raise LilliputError(
        f"{first.parent if len(device.files) > 1 else first}: only {run.fetched:,} of {run.read:,} bytes read came from a disk, the rest"
        f" from memory{f' ({why})' if why else ''}: that is not the disk's speed; try files on a local disk, not lately read"
    )


def _report(device: Device, runs: dict[Shape, list[Run]]) -> dict[str, Any]:
    plain = next((median(_speeds(found)) for shape, found in runs.items() if shape.name == "plain"), None)
    rows = []
    for shape, found in runs.items():
        speeds = _speeds(found)
        row: dict[str, Any] = {
            "shape": shape.name,
            "extent_bytes": shape.nbytes,
            "threads": shape.threads,
            "at_once": shape.at_once,
            "runs": len(found),
            "bytes": sum(run.nbytes for run in found),
            "bytes_from_disk": sum(run.fetched for run in found),
            "gb_per_s": {"median": median(speeds), "lowest": min(speeds), "highest": max(speeds)},
            "cpu_s_per_gb": median(run.cpu / run.nbytes * 1e9 for run in found),
        }
        if plain is not None:
            row["ratio"] = row["gb_per_s"]["median"] / plain
        rows.append(row)
    return {
        "files": [str(file.path) for file in device.files],
        "bytes": device.nbytes,
        "mode": "buffered" if "buffered" in device.modes else "direct",
        "why_buffered": sorted(set(device.reasons.values())),
        "alignment": device.alignment,
        "shapes": rows,
    }


def _speeds(runs: Sequence[Run]) -> list[float]:
    return [run.nbytes / run.seconds / 1e9 for run in runs]


def needs_count_of_fetched_bytes() -> None:
    if sys.platform != "linux":
        raise LilliputError("measuring a disk needs Linux: other systems do not say which bytes came from the disk and which from memory")


def fetched_bytes() -> int:
    """Bytes that this process has had fetched from storage since it started."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def _forget_cached(path: Path) -> None:
    """Ask the kernel to drop what it has cached of a file: only a buffered run would see it, and be refused."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
