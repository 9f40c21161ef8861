"""How near decoding comes to what it cannot beat: the slower of its reading and its computing.

Measured in one process, in rounds, so that a busy moment falls on everything alike:

    engine      passes of one token each, as `generate` plays them
    computing   the same passes with every weight they use already in memory
    reading     the same extents (pieces of the tape, experts), by the engine's own reader into as much memory, without arithmetic
    peak        multiply-adds in registers, which tell whether the threads get the processors they ask for
    raw         as many bytes of the same files by plain `pread`, O_DIRECT, with one thread and with as many as the reader has

Only reads that a disk answered count: sparse files are refused, and so are runs that memory answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from lilliput import _bench, _core
from lilliput.bench.disk import FROM_DISK, fetched_bytes, needs_count_of_fetched_bytes
from lilliput.bench.extents import Play, PureReading, Raw
from lilliput.bench.kernels.contest import Work, timed
from lilliput.bench.kernels.group import PEAK_SECONDS, rounds_of
from lilliput.bench.split import Split
from lilliput.engine import scheduler
from lilliput.engine.engine import Engine
from lilliput.engine.report import storage
from lilliput.errors import LilliputError, UsageError
from lilliput.machine.memory import format_size, tightest
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.disk import READER_THREADS
from lilliput.weights.experts import slot_bytes
from lilliput.weights.pieces import PieceSpec
from lilliput.weights.weights import Storage, Weights

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Step = Callable[[Sequence[int]], Array]  # more ids of the sequence → the logits [V] behind the last
Progress = Callable[[int, int], None]

# `streaming` is what the engine brings while it computes; its target holds where the disk is the slower of the two.
TARGETS = {"wall_over_limit": ("at_most", 1.05), "streaming_over_raw": ("at_least", 0.95), "reader_cpu_s_per_gb": ("at_most", 0.02)}
FREE_SHARE = 0.9  # of what is available may be taken for the model in memory
SPARSE = 0.95  # of a file's bytes are on disk, or it is sparse


@dataclass(slots=True)
class Round:
    """One round; seconds and bytes of all its passes together. `raw` is GB/s by threads."""

    wall: float = 0.0
    waited: float = 0.0
    cpu_per_byte: float = 0.0  # seconds of the reader's threads, while the engine ran
    nbytes: int = 0
    computing: float = 0.0
    reading: float = 0.0
    reading_cpu: float = 0.0
    split: Split = field(default_factory=Split)  # of the engine's passes
    raw: dict[int, float] = field(default_factory=dict)
    granted: float = 1.0  # of the processors that its threads asked for

    @property
    def limit(self) -> float:
        return max(self.reading, self.computing)


def measure_decode(
    engine: Engine, prompt: Sequence[int], *, tokens: int = 4, repeats: int = 3, trunk: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Medians, lowest and highest of `repeats` rounds of `tokens` passes behind `prompt`, and the ratios that have targets.

    `engine`: opened with the budget to be measured, for at least len(prompt) + tokens positions. Raises UsageError when nothing is read
    at this budget or files are sparse, LilliputError when memory answered the reads or the passes differ.
    """
    if tokens < 1 or repeats < 1:
        raise UsageError(f"-n and --repeats: needed 1 or more, found {tokens} and {repeats}")
    needs_count_of_fetched_bytes()
    specs, files = engine.tape.pieces, engine.tape.files
    _refuse_sparse(engine.tape.paths + list(engine.source.checkpoint.files))
    play = Play(engine, specs)
    steps, done = 1 + 4 * (1 + repeats), 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, steps)

    used: set[tuple[int, int]] = set()
    engine.weights.watch.on_route.append(lambda layer, ids, _: used.update((layer, int(i)) for i in np.unique(ids)))
    expected = _run(_of_engine(engine), prompt, tokens, Round())  # loads the pins, and shows which experts are used
    engine.weights.watch.on_route.pop()
    tick()
    resident, why = _resident(engine, specs, files, used)
    _bench.set_threads(_core.threads())
    turns = rounds_of(_core.isa(), PEAK_SECONDS)
    reading, raw = PureReading(engine, specs, files), Raw(files)
    rounds: list[Round] = []
    try:
        for _ in range(1 + repeats):  # the first round touches all memory, and is not counted
            rounds.append(found := Round())
            found.granted = timed(lambda: Work(_bench.peak(_core.isa(), turns)), _core.threads()).granted
            _engine_round(engine, play, prompt, tokens, found, expected)
            tick()
            if resident is None:
                found.computing = found.wall - found.waited
            else:
                _compare(_run(_of_model(resident, engine.chunk), prompt, tokens, found, computing=True), expected)
            tick()
            nbytes, found.reading, found.reading_cpu = _from_disk("reading alone", lambda: reading.run(play.passes))
            tick()
            for threads in sorted({1, READER_THREADS}):
                nbytes, seconds, _ = _from_disk("plain reading", lambda threads=threads: raw.run(found.nbytes, threads))  # type: ignore[misc]
                found.raw[threads] = nbytes / seconds / 1e9
            tick()
    finally:
        reading.close()
        raw.close()
        if resident is not None:
            resident.weights.close()
    return _report(engine, rounds[1:], tokens, why)


def _of_engine(engine: Engine) -> Step:
    session = engine.session()

    def step(ids: Sequence[int]) -> Array:
        session.extend(ids)
        return session.logits(more=True)

    return step


def _of_model(model: Model, chunk: int) -> Step:
    state = State(model.config)

    def step(ids: Sequence[int]) -> Array:
        work = scheduler.Work(state, ids, [len(ids) - 1])
        logits = [parts[0].span.logits for parts in scheduler.run(model, [work], chunk, more=True)]
        return np.asarray(logits[-1][-1])

    return step


def _run(step: Step, prompt: Sequence[int], tokens: int, found: Round, *, computing: bool = False) -> list[bytes]:
    """Greedy passes behind the prompt, which is not timed; the bits of their logits."""
    logits = step(prompt)
    bits = []
    start = time.perf_counter()
    for _ in range(tokens):
        logits = step([int(np.argmax(logits))])
        bits.append(logits.tobytes())
    seconds = time.perf_counter() - start
    if computing:
        found.computing = seconds
    else:
        found.wall = seconds
    return bits


def _engine_round(engine: Engine, play: Play, prompt: Sequence[int], tokens: int, found: Round, expected: list[bytes]) -> None:
    """The reader is as far ahead when the clock starts as when it stops: every pass reads on into one that follows.

    What the reader did is counted from rest to rest, with the prompt.
    """
    stats, fetched = _at_rest(engine), fetched_bytes()
    step = _of_engine(engine)
    logits = step(prompt)
    bits = []
    with play.recording(), found.split.counting(engine, tokens):
        for _ in range(tokens):
            play.begin()
            logits = step([int(np.argmax(logits))])
            bits.append(logits.tobytes())
    found.wall, found.waited, found.nbytes = found.split.wall, found.split.waited, play.nbytes
    if not play.nbytes:
        raise UsageError(
            f"--memory {format_size(engine.plan.budget)}: nothing is read at this budget, because everything stays in memory: give less"
        )
    after = _at_rest(engine)
    read = after["bytes_read"] - stats["bytes_read"]
    _check_fetched("the engine's reading", read, fetched_bytes() - fetched)
    found.cpu_per_byte = (after["cpu_s"] - stats["cpu_s"]) / read
    _compare(bits, expected)


def _at_rest(engine: Engine) -> dict[str, Any]:
    """The reader's counters once its reading ahead has ended: a reader with a read in flight counts busy time all along."""
    before = engine.weights.disk.stats()
    while True:
        time.sleep(0.002)
        now = engine.weights.disk.stats()
        if not now["queued"] and now["busy_s"] == before["busy_s"]:
            return now
        before = now


def _from_disk(what: str, run: Callable[[], tuple[int, float, float]]) -> tuple[int, float, float]:
    before = fetched_bytes()
    nbytes, seconds, cpu = run()
    _check_fetched(what, nbytes, fetched_bytes() - before)
    return nbytes, seconds, cpu


def _check_fetched(what: str, read: int, fetched: int) -> None:
    if fetched < FROM_DISK * read:
        raise LilliputError(
            f"{what}: only {fetched:,} of {read:,} bytes came from a disk, the rest from memory: that is not the disk's speed; "
            "try files on a local disk, not lately read"
        )


def _compare(bits: list[bytes], expected: list[bytes]) -> None:
    if bits != expected:
        raise LilliputError("the same passes gave other logits: this must never happen, so no speed is reported")


def _refuse_sparse(paths: Sequence[Path]) -> None:
    for path in dict.fromkeys(paths):
        status = path.stat()
        if status.st_blocks * 512 < SPARSE * status.st_size:
            raise UsageError(
                f"{path}: needed a file whose bytes are on disk, found a sparse one ({status.st_blocks * 512:,} of {status.st_size:,} "
                "bytes): holes are read at the speed of memory; use `lilliput synth DIR --shape mini`"
            )


def _resident(
    engine: Engine, specs: Sequence[PieceSpec], files: Sequence[tuple[Path, int]], used: set[tuple[int, int]]
) -> tuple[Model | None, str]:
    """The model with every weight that the passes use in memory, and None with the reason where it does not fit."""
    source = engine.source
    wanted = source.layout
    slot = slot_bytes(wanted.experts) if wanted.experts else 0
    window = min(8, len(used))
    needed, there = sum(spec.nbytes for spec in specs) + (len(used) + window) * slot, tightest().nbytes
    if needed > FREE_SHARE * there:
        return None, f"the model in memory would take {format_size(needed)}, and {format_size(there)} are free"
    weights = Weights(source.checkpoint, wanted, usable_ids=source.usable_ids)
    try:
        weights.allocate(Storage(frozenset(range(len(specs))), 0, len(used), max(window, 1), policy="lru"), specs, files)
        return Model(source.config, weights), ""
    except BaseException:
        weights.close()
        raise


def _report(engine: Engine, rounds: Sequence[Round], tokens: int, why: str) -> dict[str, Any]:
    def spread(values: Sequence[float]) -> dict[str, float]:
        return {"median": median(values), "lowest": min(values), "highest": max(values)}

    ratios = {
        "wall_over_limit": [r.wall / r.limit for r in rounds],
        "streaming_over_raw": [r.nbytes / r.wall / 1e9 / max(r.raw.values()) for r in rounds],
        "reading_over_raw": [r.nbytes / r.reading / 1e9 / max(r.raw.values()) for r in rounds],
        "reader_cpu_s_per_gb": [r.cpu_per_byte * 1e9 for r in rounds],
        "reading_cpu_s_per_gb": [r.reading_cpu / r.nbytes * 1e9 for r in rounds],
    }
    return {
        "passes_per_round": tokens,
        "rounds": len(rounds),
        "budget_bytes": engine.plan.budget,
        "trunk": storage(engine),
        "threads": _core.threads(),
        "processor_granted": median(r.granted for r in rounds),
        "bytes_per_pass": spread([r.nbytes / tokens for r in rounds]),
        "computing_is": f"the engine's wall time without its waits, because {why}" if why else "the same passes, all weights in memory",
        "seconds_per_pass": {
            "wall": spread([r.wall / tokens for r in rounds]),
            "computing": spread([r.computing / tokens for r in rounds]),
            "reading": spread([r.reading / tokens for r in rounds]),
            "waited": spread([r.waited / tokens for r in rounds]),
        },
        "gb_per_s": {
            "streaming": spread([r.nbytes / r.wall / 1e9 for r in rounds]),
            "reading": spread([r.nbytes / r.reading / 1e9 for r in rounds]),
            **{f"raw, {n} thread{'s' * (n > 1)}": spread([r.raw[n] for r in rounds]) for n in rounds[0].raw},
        },
        "ratios": {name: spread(values) | _target(name, median(values)) for name, values in ratios.items()},
        "split": Split.together([r.split for r in rounds]).as_dict(engine.config.hidden_size),
        "page_cache": [{"file": path, "why": because} for path, because in engine.weights.disk.reader.buffered()],
    }


def _target(ratio: str, found: float) -> dict[str, Any]:
    """The bound on a ratio and whether it is met; nothing for a ratio without one."""
    if ratio not in TARGETS:
        return {}
    which, bound = TARGETS[ratio]
    return {which: bound, "met": found <= bound if which == "at_most" else found >= bound}
