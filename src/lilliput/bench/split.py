"""Where the time of passes goes: to each kind of kernel, to waking and awaiting threads, to the disk, and the rest, which is Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lilliput import _core
from lilliput.bench.kernels.targets import REST_SHARE, REST_WIDTH
from lilliput.engine.engine import Engine

BESIDE = ("forks", "joins")  # parts of the kernels' own time


def waited(engine: Engine) -> float:
    """Seconds that the arithmetic has waited for the disk since the engine was opened."""
    weights = engine.weights
    return weights.tape.stats.waited_s + (weights.experts.stats.waited_s if weights.experts is not None else 0.0)


@dataclass(slots=True)
class Split:
    """Sums over `passes` passes. `kernels` has the wall time inside the core's operations, by kind; `calls` how many there were."""

    passes: int = 0
    wall: float = 0.0
    waited: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def counting(self, engine: Engine, passes: int = 1) -> Iterator[None]:
        """Counts the block, which plays so many passes of `engine` and nothing else. Profiles of one process do not nest."""
        before = waited(engine)
        _core.profile_start()
        start = time.perf_counter()
        try:
            yield
        finally:
            wall, counted = time.perf_counter() - start, _core.profile_stop()
        self._add(passes, wall, waited(engine) - before, counted)

    @staticmethod
    def together(splits: Iterable[Split]) -> Split:
        """The sum of several."""
        all_of_them = Split()
        for split in splits:
            all_of_them._add(split.passes, split.wall, split.waited, {kind: (split.calls[kind], s) for kind, s in split.kernels.items()})
        return all_of_them

    def _add(self, passes: int, wall: float, waited_s: float, counted: dict[str, tuple[int, float]]) -> None:
        self.passes += passes
        self.wall += wall
        self.waited += waited_s
        for kind, (calls, seconds) in counted.items():
            self.kernels[kind] = self.kernels.get(kind, 0.0) + seconds
            self.calls[kind] = self.calls.get(kind, 0) + calls

    @property
    def threading(self) -> float:
        """Waking threads and waiting for them."""
        return sum(self.kernels.get(kind, 0.0) for kind in BESIDE)

    @property
    def python(self) -> float:
        """Everything between the kernels that is no waiting for the disk."""
        return self.wall - self.waited - sum(s for kind, s in self.kernels.items() if kind not in BESIDE)

    def as_dict(self, width: int) -> dict[str, Any]:
        """Per pass, in seconds; kinds that were not used are left out. `width`: the model's hidden size, which the target depends on."""
        n = max(self.passes, 1)
        share = (self.python + self.threading) / self.wall if self.wall else 0.0
        return {
            "passes": self.passes,
            "wall_s": self.wall / n,
            "kernels": {
                kind: {"seconds": s / n, "calls": self.calls[kind] / n, "share": s / self.wall}
                for kind, s in sorted(self.kernels.items(), key=lambda item: -item[1])
                if self.calls[kind] and kind not in BESIDE
            },
            "forks_and_joins_s": self.threading / n,
            "waited_for_disk_s": self.waited / n,
            "python_s": self.python / n,
            "overhead": {"share": share} | ({"at_most": REST_SHARE, "met": share <= REST_SHARE} if width >= REST_WIDTH else {}),
        }


def table(splits: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[float]]]:
    """(what, seconds per pass of each split), the kernels with their forks and joins, which come again in the last row."""
    for kind in dict.fromkeys(kind for split in splits for kind in split["kernels"]):
        yield kind, [split["kernels"].get(kind, {"seconds": 0.0})["seconds"] for split in splits]
    yield "waiting for the disk", [split["waited_for_disk_s"] for split in splits]
    yield "Python", [split["python_s"] for split in splits]
    yield "in all", [split["wall_s"] for split in splits]
    yield "forks and joins among the kernels", [split["forks_and_joins_s"] for split in splits]
