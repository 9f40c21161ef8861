"""Facts about a run, as every report tells them."""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lilliput import _core
from lilliput.machine.memory import about
from lilliput.weights.experts import ExpertStats

if TYPE_CHECKING:
    from lilliput.engine.engine import Engine

LONG_ENOUGH = 0.05  # seconds of reading at the plan's speed; less (the demo) tells nothing of the disk


def peak_rss() -> int:
    """The most memory this process ever had resident, in bytes, as the kernel counts it."""
    with suppress(OSError, StopIteration):  # Linux; what getrusage says there may be the parent's
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_short(engine: Engine) -> str:
    """How a run was made, in one line."""
    f = facts(engine)
    return f"{f['checkpoint']}: {f['layers']} layers; {f['isa']}, {f['threads']} threads; {about(f['bytes_read'])} read"


def facts(engine: Engine) -> dict[str, Any]:
    """What must be known to repeat a run: versions, machine settings, the checkpoint."""
    from lilliput import __version__

    return {
        "versions": {"lilliput": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "isa": _core.isa(),
        "threads": _core.threads(),
        "layers": engine.config.num_layers,
        "checkpoint": str(engine.source.directory),
        "config_sha256": engine.source.config_hash,
        "bytes_read": engine.bytes_read,
        "peak_rss_bytes": peak_rss(),
        "plan": {"total": engine.plan.total, **{k: v for k, v in asdict(engine.plan).items() if k != "pins"}},
        "run": counters(engine),
    }


def storage(engine: Engine) -> str:
    """How the trunk lies on disk."""
    return "packed" if engine.tape.packed else "in place"


def counters(engine: Engine) -> dict[str, Any]:
    """What the tape, the experts and the reader counted since the engine was opened. A hit is an expert that cost no read."""
    weights = engine.weights
    reader, tape = weights.disk.stats(), weights.tape
    gigabytes = reader["bytes_read"] / 1e9
    experts = asdict(weights.experts.stats) if weights.experts is not None else {}
    return {
        "trunk": {
            "storage": storage(engine),
            "bytes_planned_per_pass": tape.planned_bytes,
            "bytes_last_pass": tape.stats.pass_bytes,
            "bytes_read": tape.stats.bytes_consumed,
            "bytes_read_past_the_end": tape.stats.bytes_dropped,
            "pieces": tape.stats.pieces,
            "waits": tape.stats.waits,
            "waited_s": tape.stats.waited_s,
            "requested_ahead": tape.stats.requested_ahead,
        },
        "experts": experts,
        "reader": {
            **reader,
            "gb_per_s": gigabytes / reader["busy_s"] if reader["busy_s"] else None,
            "cpu_s_per_gb": reader["cpu_s"] / gigabytes if gigabytes else None,
            "page_cache": [{"file": path, "why": why} for path, why in weights.disk.reader.buffered()],
        },
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """What one token cost.

    `bytes_read` is what arrived meanwhile, reading ahead included; `trunk_bytes` and `expert_bytes` are what was read for its own pass
    or passes. `hits` of `experts` used cost no read.
    """

    seconds: float
    bytes_read: int
    trunk_bytes: int
    expert_bytes: int
    waits: int
    waited_s: float
    hits: int
    experts: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s, {about(self.bytes_read)} read, {self.waits} waits ({self.waited_s:.2f} s), "
            f"{self.hits} of {self.experts} experts resident"
        )


class Meter:
    """What each token cost: call `measure` after every token."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = self._now()

    def _now(self) -> tuple[float, int, int, int, int, float, int, int]:
        weights = self._engine.weights
        experts = weights.experts.stats if weights.experts is not None else ExpertStats()
        tape = weights.tape.stats
        waits, waited = tape.waits + experts.waits, tape.waited_s + experts.waited_s
        used = experts.hits + experts.reads
        return (
            *(time.monotonic(), self._engine.bytes_read, tape.bytes_consumed, experts.bytes_read),
            *(waits, waited, experts.hits, used),
        )

    def measure(self) -> Cost:
        """Since the last call."""
        now = self._now()
        before, self._before = self._before, now
        return Cost(*(b - a for a, b in zip(before, now, strict=True)))  # type: ignore[arg-type]


def closing_lines(engine: Engine, seconds: float) -> Iterator[str]:
    """The run in a few lines: disk, experts, memory; no number that flatters."""
    c = counters(engine)
    trunk, experts, reader = c["trunk"], c["experts"], c["reader"]
    waited = trunk["waited_s"] + experts.get("waited_s", 0.0)
    speed = f"{about(reader['gb_per_s'] * 1e9)}/s while reading" if reader["gb_per_s"] else "nothing read"
    share = 100 * waited / seconds if seconds else 0.0
    rates = engine.plan.rates
    enough = reader["bytes_read"] >= rates.disk_bytes_per_s * LONG_ENOUGH
    device = f" (the plan counts on {about(rates.disk_bytes_per_s)}/s)" if enough else ""
    yield f"disk: {about(reader['bytes_read'])}, {speed}{device}; {share:.0f} % of the time waited for it"
    yield (
        f"trunk ({trunk['storage']}): {about(trunk['bytes_last_pass'])} in the last pass, "
        f"{about(trunk['bytes_planned_per_pass'])} planned; {about(trunk['bytes_read_past_the_end'])} read past the end"
    )
    if experts:
        used = experts["hits"] + experts["reads"]
        rate = f" ({100 * experts['hits'] / used:.1f} %)" if used else ""
        yield f"experts: {experts['hits']} of {used} resident{rate}, {about(experts['bytes_read'])} read"
    yield f"memory: peak RSS {about(peak_rss())}, planned {about(engine.plan.total)} of {about(engine.plan.budget)}"
    for path, why in engine.weights.disk.reader.buffered():
        yield f"{path} is read through the page cache: {why}"
