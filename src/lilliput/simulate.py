"""What a cache of a given size would have hit, for a recorded trace: every policy, and the best that any policy could do.

A hit is an expert that needs no read. An expert that several tokens of one pass choose is asked for once. First touches are misses.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lilliput.trace import Trace
from lilliput.weights.policy import POLICIES, Policy, make_policy

Keys = npt.NDArray[np.int64]

EXPERT_BYTES = 17_547_264  # of the released model
NEVER = 1 << 62


@dataclass(frozen=True)
class Row:
    """One size: its capacity in experts, and hits by policy and of Belady's optimum."""

    size: int
    capacity: int
    hits: dict[str, int]
    belady: int


@dataclass(frozen=True)
class Simulation:
    passes: int
    tokens: int
    requests: int
    distinct: int  # experts asked for at least once: each is a miss the first time
    expert_bytes: int
    rows: list[Row]
    lru_curve: npt.NDArray[np.float64]  # hit rate of plain LRU at capacity 0, 1, ... distinct

    def rate(self, hits: int) -> float:
        return hits / self.requests if self.requests else 0.0

    def as_dict(self) -> dict[str, object]:
        return {
            "passes": self.passes,
            "tokens": self.tokens,
            "requests": self.requests,
            "distinct_experts": self.distinct,
            "expert_bytes": self.expert_bytes,
            "sizes": [
                {
                    "bytes": row.size,
                    "experts": row.capacity,
                    "hit_rate": {name: self.rate(hits) for name, hits in row.hits.items()} | {"belady": self.rate(row.belady)},
                }
                for row in self.rows
            ],
        }


def simulate(
    trace: Trace,
    sizes: Sequence[int],
    expert_bytes: int = EXPERT_BYTES,
    policies: Sequence[str] = tuple(POLICIES),
    progress: Callable[[int, int], object] | None = None,
) -> Simulation:
    """Replay a trace at caches of `sizes` bytes. `progress` is called with (done, total) replays."""
    keys = trace.keys
    rows: list[Row] = []
    total = len(sizes) * (len(policies) + 1)
    for size in sizes:
        capacity = size // expert_bytes
        hits = {}
        for name in policies:
            hits[name] = sum(replay(trace, make_policy(name, capacity, trace.layers, trace.experts)))
            if progress:
                progress(len(rows) * (len(policies) + 1) + len(hits), total)
        rows.append(Row(size, capacity, hits, belady(keys, capacity)))
    curve = lru_curve(keys)
    distinct = len(curve) - 1
    return Simulation(len(trace.passes), trace.tokens, len(keys), distinct, expert_bytes, rows, curve / max(1, len(keys)))


def replay(trace: Trace, policy: Policy) -> list[int]:
    """Hits of each pass."""
    return [
        sum(len(policy.request(request.layer, request.ids, request.uses, request.tokens).hits) for request in one) for one in trace.passes
    ]


def next_uses(keys: Keys) -> Keys:
    """For every request the index of the next request for the same key; NEVER for the last."""
    order = np.argsort(keys, kind="stable")
    result = np.full(len(keys), NEVER, np.int64)
    same = keys[order[1:]] == keys[order[:-1]]
    result[order[:-1][same]] = order[1:][same]
    return result


def belady(keys: Keys, capacity: int, *, bypass: bool = True) -> int:
    """Most hits any policy could get that knew the future, for objects of one size: displace what is used last again.

    With `bypass` an object may go without ever taking a slot, as our cache does: the bound for all our policies. Without it
    every object takes a slot when it is asked for, as in textbooks and in libcachesim. Both are exact optima; they differ by
    a few hits (at capacity 1 visibly).
    """
    if capacity <= 0:
        return 0
    resident: set[int] = set()
    # A heap of (-next use, key). When a resident key is used its old entry stays behind, but lies in the past: never on top.
    furthest: list[tuple[int, int]] = []
    hits = 0
    for key, following in zip(keys.tolist(), next_uses(keys).tolist(), strict=True):
        if key in resident:
            hits += 1
        elif len(resident) >= capacity:
            if bypass and -furthest[0][0] <= following:
                continue
            resident.remove(heapq.heappop(furthest)[1])
        resident.add(key)
        heapq.heappush(furthest, (-following, key))
    return hits


def lru_curve(keys: Keys) -> npt.NDArray[np.int64]:
    """Hits of plain LRU at every capacity 0, 1, ... up to the number of distinct keys, in one pass (Mattson's stack distances).

    A request hits from the capacity on that holds the distinct keys since the last request for the same key, itself included.
    They are counted in a Fenwick tree that marks, per key, the place of its last request.
    """
    n = len(keys)
    tree = [0] * (n + 1)
    last: dict[int, int] = {}
    distances = [0] * (n + 1)
    for place, key in enumerate(keys.tolist(), start=1):
        before = last.get(key)
        if before is not None:
            marks, i = 0, before - 1
            while i:
                marks += tree[i]
                i &= i - 1
            distances[len(last) - marks] += 1
            i = before
            while i <= n:
                tree[i] -= 1
                i += i & -i
        last[key] = i = place
        while i <= n:
            tree[i] += 1
            i += i & -i
    return np.cumsum(np.array(distances[: len(last) + 1], np.int64))
