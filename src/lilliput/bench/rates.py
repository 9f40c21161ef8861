"""How fast this machine is, measured in a second or two: the kernels on memory larger than the caches, the disk past the page cache.

What is found is kept (`lilliput.machine.rates`). A disk that cannot be measured (sparse files, answers from memory) keeps the assumed
speed, and the source says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from lilliput import _core
from lilliput.bench.disk import PIECE, PIECES_AHEAD, Shape, measure_disk
from lilliput.errors import LilliputError, UsageError
from lilliput.machine.costs import ASSUMED, Rates
from lilliput.machine.memory import format_size
from lilliput.machine.rates import keep_rates, largest_file

WIDTH, LATENT = 3072, 3584  # of an expert measured: K3's
COLUMNS = 7168
LEAST, MOST = 64_000_000, 600_000_000  # bytes of weights gone through: twice the last-level cache, within reason
SAMPLE = 8_000_000  # bytes of them that differ
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SECONDS = 0.25  # per kernel
TOKENS = 64  # of the pass that tells what further tokens cost
DISK_BYTES = 500_000_000
DISK_SHAPE = Shape("pieces", PIECE, 4, PIECES_AHEAD)

Clock = Callable[[], float]


def measure_rates(files: Sequence[Path], kind: str = "bf16", shards: Sequence[Path] = ()) -> Rates:
    """Measure, and keep what was found. `kind` is how the tape is stored ("bf16" or "k12"), `files` are its files, and `shards` those that
    the experts are read from.

    A few seconds and as much memory as twice the processor's largest cache. A disk that cannot be measured is assumed, and not kept.
    """
    trunk, more = _trunk(kind)
    kernels = f"kernels measured ({_core.isa()}, {_core.threads()} threads)"
    rates = replace(ASSUMED, trunk_bytes_per_s=trunk, expert_bytes_per_s=_experts(), more_tokens=more)
    try:
        measured = disk_speed(files, shards)
    except (LilliputError, OSError) as error:
        reason = "the files are sparse" if "is sparse" in str(error) else str(error).split(" (")[0].split(": less would")[0]
        speed = format_size(int(rates.disk_bytes_per_s))
        return replace(rates, source=f"{kernels}; disk assumed to deliver {speed}/s, because it could not be measured ({reason})")
    rates = replace(rates, disk_bytes_per_s=measured, source=f"{kernels}, disk measured past the page cache")
    keep_rates(files, kind, rates)
    return rates


def disk_speed(files: Sequence[Path], shards: Sequence[Path] = ()) -> float:
    """Bytes per second of reading pieces as the tape does; raises LilliputError when the disk did not answer.

    Where the tape's directory has too little to measure (packed, of a small model), the shards are read if they lie on the same device.
    """
    tape = largest_file(files)
    try:
        return _speed_of(tape.parent)
    except UsageError:
        beside = [file for file in shards if file.parent != tape.parent and _device(file) == _device(tape)]
        if not beside:
            raise
        return _speed_of(largest_file(beside).parent)


def _device(file: Path) -> int:
    return file.stat().st_dev


def _speed_of(directory: Path) -> float:
    report = measure_disk(directory, shapes=(DISK_SHAPE,), repeats=1, run_bytes=DISK_BYTES)[0]
    return float(report["shapes"][0]["gb_per_s"]["median"]) * 1e9


def _trunk(kind: str) -> tuple[float, float]:
    """Bytes per second of a product with one token, and what a further token costs as a share of that."""
    rows = beyond_caches() // (2 * COLUMNS) // 4 * 4
    bf16 = np.random.default_rng(0).integers(0x3C00, 0x3F00, SAMPLE // 2, np.uint16)  # small ordinary numbers
    weights = np.resize(bf16, rows * COLUMNS).view(np.uint8)
    multiply: Callable[..., None] = _core.matmul_bf16
    if kind == "k12":
        counts = np.zeros(256, np.int64)
        _core.k12_histogram(counts, weights)
        table = np.frombuffer(_core.k12_table(counts), np.uint8)
        weights, multiply = _core.k12_encode(weights, rows, COLUMNS, table), _core.matmul_k12
    seconds = []
    for tokens in (1, TOKENS):
        x, y = np.ones((tokens, COLUMNS), np.float32), np.empty((tokens, rows), np.float32)
        seconds.append(_best_seconds(lambda x=x, y=y: multiply(y, x, weights, rows)))  # type: ignore[misc]
    return weights.nbytes / seconds[0], max(seconds[1] / seconds[0] - 1, 0.0) / (TOKENS - 1)


def _experts() -> float:
    """Bytes per second of experts, one token each."""
    chance = np.random.default_rng(0)

    def part(rows: int, columns: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
        packed = chance.integers(0, 256, rows * columns // 2, np.uint8)
        return [packed, chance.integers(118, 126, rows * columns // 32, np.uint8)]

    parts = [*part(WIDTH, LATENT), *part(LATENT, WIDTH), *part(WIDTH, LATENT)]
    one = np.concatenate(parts)
    places = [0, *np.cumsum([p.nbytes for p in parts])[:-1].tolist()]
    data = np.tile(one, beyond_caches() // one.nbytes + 1)  # in one array, whose memory the system gets back: many small ones stay ours
    x, y = np.ones((1, LATENT), np.float32), np.zeros((1, LATENT), np.float32)
    row, weight = np.zeros(1, np.int32), np.ones(1, np.float32)
    begins = range(0, data.nbytes, one.nbytes)
    chosen = [(row, weight, _core.Expert(data, [begin + place for place in places], WIDTH, LATENT)) for begin in begins]
    return data.nbytes / _best_seconds(lambda: _core.experts(y, x, chosen, 4.0, 25.0))


def beyond_caches() -> int:
    """Bytes that the processor's caches do not hold; those of a server hold a quarter of a gigabyte."""
    largest = 0
    for file in CACHES.glob("index*/size"):
        with suppress(OSError, ValueError):
            largest = max(largest, int(file.read_text().strip().removesuffix("K")) * 1024)
    return min(max(2 * largest, LEAST), MOST)


def _best_seconds(run: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Of at least three runs: other processes only make it longer, and what is found is kept for weeks."""
    run()
    times: list[float] = []
    while sum(times) < SECONDS or len(times) < 3:
        began = clock()
        run()
        times.append(clock() - began)
    return min(times)
