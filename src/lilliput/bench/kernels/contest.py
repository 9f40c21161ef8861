"""Timing many things against each other: in one process, in rounds, so that a busy moment falls on everything alike.

A *contender* is a kernel, or a *yardstick* that kernels are compared with (a plain read, the peak of multiply-adds, numpy, ...). Every
round runs every contender with every number of threads and, where it depends on that, every instruction set; what counts is the
median over rounds of the ratio of two rates of the same round. Time on one thread is that thread's own, so what others take from
the processor does not count (what they take from memory does); on several it is the clock's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from lilliput import _bench, _core
from lilliput.bench.kernels.rivals import Rivals

LOOK, BUSY, PATIENCE = 0.02, 0.1, 2.0  # seconds between two looks, the share of them that is too busy, seconds until we give up


@dataclass(frozen=True, slots=True)
class Work:
    """What one run did. `products`: multiply-adds. `nbytes`: as compared with a plain read (a weight that stands for bf16 counts two,
    however it is stored). `stored`: bytes that were there to be read."""

    products: float = 0.0
    nbytes: float = 0.0
    stored: float = 0.0


@dataclass(frozen=True, slots=True)
class Contender:
    """`run` does some work and says how much. `digest` makes the same outputs every time and digests them: contenders of one group
    with the same `outputs` and tokens must agree on every instruction set with any number of threads."""

    name: str
    tokens: int  # 0: does not depend on them
    run: Callable[[], Work]
    digest: Callable[[], int] | None = None
    outputs: str = ""
    per_isa: bool = True
    is_rival: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    group: str
    name: str
    tokens: int
    isa: str | None
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` as they count; `granted`: the share of the clock's time that the process's threads together got of a processor each."""

    seconds: float
    work: Work
    granted: float = 1.0

    def rate(self, by: str) -> float:
        """Per second, of "products", "nbytes" or "stored"."""
        return float(getattr(self.work, by)) / self.seconds


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    lowest: float
    highest: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(median(values), min(values), max(values))


@dataclass(slots=True)
class Results:
    """Samples by key and round, and digests by (group, outputs, tokens) and then who made them."""

    samples: dict[Key, dict[int, Sample]] = field(default_factory=dict)
    digests: dict[tuple[str, str, int], dict[Key, int]] = field(default_factory=dict)

    def rates(self, key: Key, by: str) -> Spread | None:
        values = [sample.rate(by) for sample in self.samples.get(key, {}).values()]
        return Spread.of(values) if values and all(values) else None

    def ratio(self, key: Key, other: Key, by: str) -> Spread | None:
        """How many times as fast `key` was as `other`, over the rounds that have both."""
        mine, theirs = self.samples.get(key, {}), self.samples.get(other, {})
        values = [mine[n].rate(by) / theirs[n].rate(by) for n in mine if n in theirs and theirs[n].rate(by)]
        return Spread.of(values) if values and all(values) else None

    def granted(self, threads: int) -> float | None:
        """The median share of a processor that threads got which had nothing to wait for (at the peak)."""
        of_peak = [by_round for key, by_round in self.samples.items() if key.name == "peak" and key.threads == threads]
        found = [sample.granted for by_round in of_peak for sample in by_round.values()]
        return median(found) if found else None

    def disagreements(self) -> list[str]:
        """One line per digest that differs from the first of its outputs."""
        found = []
        for made in self.digests.values():
            (first, expected), *others = made.items()
            found += [f"{_named(key)} differs from {_named(first)}" for key, digest in others if digest != expected]
        return found


def timed(run: Callable[[], Work], threads: int) -> Sample:
    """One run, on so many threads."""
    clock, process, thread = time.perf_counter(), time.process_time(), time.thread_time()
    work = run()
    wall = time.perf_counter() - clock
    granted = (time.process_time() - process) / (wall * threads)
    return Sample(time.thread_time() - thread if threads == 1 else wall, work, granted)


def rest() -> None:
    """Until the process's threads have come to rest: those of numpy's BLAS spin for a tenth of a second after their work, and what runs
    meanwhile has a processor less."""
    give_up = time.perf_counter() + PATIENCE
    while (before := time.perf_counter()) < give_up:
        used = time.process_time()
        time.sleep(LOOK)
        if time.process_time() - used < BUSY * (time.perf_counter() - before):
            return


def _named(key: Key) -> str:
    threads = "1 thread" if key.threads == 1 else f"{key.threads} threads"
    return f"{key.name} with {key.tokens} token{'s' * (key.tokens != 1)} ({key.isa}, {threads})"


@dataclass(frozen=True, slots=True)
class Contest:
    """`isas` and `threads`: what every contender is run with."""

    isas: Sequence[str]
    threads: Sequence[int]
    rivals: Rivals
    results: Results = field(default_factory=Results)

    @contextmanager
    def settings_kept(self) -> Iterator[None]:
        """Instruction set and threads of the process come back after the block."""
        before = _core.isa(), _core.threads()
        try:
            yield
        finally:
            _core.use_isa(before[0])
            _core.set_threads(before[1])

    def measure(self, group: str, contenders: Sequence[Contender], repeats: int, tick: Callable[[], None]) -> None:
        """Digest every kernel, then `repeats` rounds; the first of a kernel's runs, which touches its memory, is not timed."""
        for key, contender in self._all(group, contenders):
            if contender.digest is not None:
                digest = contender.digest()
                self.results.digests.setdefault((group, contender.outputs or contender.name, contender.tokens), {})[key] = digest
            else:
                contender.run()
        tick()
        for number in range(repeats):
            for key, contender in self._all(group, contenders):
                self.results.samples.setdefault(key, {})[number] = timed(contender.run, key.threads)
                if contender.is_rival:
                    rest()
            tick()

    def _all(self, group: str, contenders: Sequence[Contender]) -> Iterator[tuple[Key, Contender]]:
        """Every contender with every setting, which is in force when it is yielded."""
        for threads in self.threads:
            _core.set_threads(threads)
            _bench.set_threads(threads)
            with self.rivals.threads(threads):
                for contender in contenders:
                    for isa in self.isas if contender.per_isa else [None]:
                        if isa is not None:
                            _core.use_isa(isa)
                        yield Key(group, contender.name, contender.tokens, isa, threads), contender
