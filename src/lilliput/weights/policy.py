"""Which experts stay in memory. Pure bookkeeping, no I/O: the engine's cache and `lilliput simulate` use the same objects.

The engine presents, layer by layer and pass by pass, the experts one layer needs, and gets a `Verdict`: which of them are
resident, and for each of the others (which must be read either way) whether it may stay and whom it displaces. An expert
of the current request is never displaced: it may not have been consumed yet.

One token of K3 is one scan over 1,472 experts (25.8 GB). Whatever comes round once per token and is kept by recency alone
is displaced just before it is wanted again, so a cache below one token's set gets no hit at all from LRU. All policies but
`lru` therefore let an expert go at once rather than displace a more valuable one, and they count time in visits
of the expert's *own layer*: an expert of layer 50 is no older because layers 1 to 49 have come by since.

Evidence for the default, hit rates in percent (docs/expert-cache.md has the rest and the commands):

                   released trace, twelve tokens, GB of cache      means of nine synthetic traces of 120 tokens,
                   (57 % are first touches: always misses)         cache as a share of one token's set
                      8      16      24      32      64              0.3    0.62    0.93    1.25     2.5
    lru               0       0       0    31.5    39.0                0       0       0    27.6    36.8
    lfu            10.0    17.7    23.6    28.1    39.6             10.3    16.3    20.5    24.0    33.5
    layered         8.6    17.1    25.0    31.3    39.0              7.4    14.8    21.3    27.6    36.8
    forecast       10.8    20.8    29.5    33.1    38.6             13.9    23.5    30.1    34.5    43.1
    optimum        25.3    35.8    39.8    42.4    43.3             25.7    39.0    44.9    48.9    57.8

What was tried and did not pay: learned tables of (age, count) cells (equal on long traces, noisier in the first tokens);
fixed weights for recency and frequency (as good on routers, up to 8 points worse where recency means nothing); learning
only the weight of recency (frequency is itself a noisy estimate and has to be shrunk); weights pooled over the layers
(deep layers repeat 0.39 of their choices, shallow ones 0.26); ARC, 2Q, S3-FIFO, W-TinyLFU (none knows about layers).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Key = tuple[int, int]  # (layer, expert)
Ids = Sequence[int] | npt.NDArray[np.integer]
Array = npt.NDArray[np.float64]


class Verdict(NamedTuple):
    """What to do about the experts of one request. Ids ascending."""

    hits: list[int]  # resident: no read
    misses: list[int]  # to be read, whether they stay or not
    admitted: dict[int, Key | None]  # the misses that stay → the expert whose slot each takes; None: an empty slot


class Policy(ABC):
    """Keeps at most `capacity` experts of the given layers, each of which has `experts` of them.

    Every expert has a score that changes only when its own layer is visited. A miss is admitted while a slot is free or
    its score is above that of the lowest resident, which it displaces; the highest misses go first. Subclasses say what
    the score is. A request costs 0.05 ms, 0.12 after a layer's arithmetic has been through the caches. Few calls of numpy:
    a layer has only some tens of residents.
    """

    name = ""

    def __init__(self, capacity: int, layers: Sequence[int], experts: int) -> None:
        self.capacity, self.layers, self.experts = capacity, tuple(layers), experts
        self._rows = {layer: row for row, layer in enumerate(self.layers)}
        self._score: Array = np.full((len(self.layers), experts), -math.inf)
        self._count = 0
        # Per layer its residents as (-score, expert), highest score first; and the lowest score, infinite where nothing can be displaced.
        self._queues: list[list[tuple[float, int]]] = [[] for _ in self.layers]
        self._lowest = [math.inf] * len(self.layers)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return any(expert == key[1] for _, expert in self._queues[self._rows[key[0]]])

    def residents(self) -> list[Key]:
        return [(layer, expert) for layer, queue in zip(self.layers, self._queues, strict=True) for _, expert in queue]

    def request(self, layer: int, ids: Ids, uses: Ids | None = None, tokens: int = 1) -> Verdict:
        """A pass of `tokens` tokens needs the experts `ids` (strictly ascending) of `layer`.

        `uses` says how many of the tokens chose each; 1 where it is not given."""
        asked: list[int] = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if any(a >= b for a, b in pairwise(asked)):
            raise ValueError(f"layer {layer}: expert ids must be strictly ascending, found {asked}")
        row = self._rows[layer]
        wanted = np.array(asked, np.intp)
        self._visit(row, wanted, 1.0 if uses is None or tokens == 1 else np.asarray(uses, np.float64), tokens)
        held = [expert for _, expert in self._queues[row]]
        there = set(held).intersection(asked)
        misses = [expert for expert in asked if expert not in there]
        costs = (-self._score[row, held + misses]).tolist()
        queue = list(zip(costs, held, strict=False))
        newcomers = list(zip(costs[len(held) :], misses, strict=True))
        admitted: dict[int, Key | None] = {}
        if self.capacity and misses:
            self._set_queue(row, [entry for entry in queue if entry[1] not in there])  # none that is asked for may be displaced
            admitted = self._admit(newcomers)
            queue = [entry for entry in queue if entry[1] in there] + self._queues[row]
            queue += [entry for entry in newcomers if entry[1] in admitted]
        self._set_queue(row, queue)
        return Verdict(sorted(there), misses, {expert: admitted[expert] for expert in sorted(admitted)})

    def restore(self, there: Collection[Key]) -> list[Key]:
        """Whatever became of the last request, these are the residents now; returns those too many, which have to go, as `resize` does."""
        experts: dict[int, list[int]] = {}
        for layer, expert in there:
            experts.setdefault(self._rows[layer], []).append(expert)
        for row in range(len(self.layers)):
            held = experts.get(row, [])
            self._set_queue(row, list(zip((-self._score[row, held]).tolist(), held, strict=True)))
        self._count = len(there)
        return self.resize(self.capacity)

    def resize(self, capacity: int) -> list[Key]:
        """Change the capacity between two requests; returns the experts that had to go, the least valuable first."""
        self.capacity, gone = capacity, []
        while self._count > capacity:
            gone.append(self._displace(min(range(len(self.layers)), key=self._lowest.__getitem__)))
            self._count -= 1
        return gone

    @abstractmethod
    def _visit(self, row: int, wanted: npt.NDArray[np.intp], uses: float | Array, tokens: int) -> None:
        """Bring the scores of one layer up to date: `wanted` are used now."""

    def _admit(self, newcomers: Sequence[tuple[float, int]]) -> dict[int, Key | None]:
        """Which of the (-score, expert) stay, and whom each displaces."""
        admitted: dict[int, Key | None] = {}
        for cost, expert in sorted(newcomers):
            if cost == math.inf:
                break
            if self._count < self.capacity:
                self._count += 1
                admitted[expert] = None
                continue
            lowest = min(self._lowest)
            if lowest >= -cost:  # equal is not better, and a resident expert is due sooner
                break
            admitted[expert] = self._displace(self._lowest.index(lowest))
        return admitted

    def _displace(self, row: int) -> Key:
        queue = self._queues[row]
        _, expert = queue.pop()
        self._lowest[row] = -queue[-1][0] if queue else math.inf
        return self.layers[row], expert

    def _set_queue(self, row: int, queue: list[tuple[float, int]]) -> None:
        queue.sort()
        self._queues[row] = queue
        self._lowest[row] = -queue[-1][0] if queue else math.inf


class Lru(Policy):
    """The most recently used stay. Of use only above one token's set."""

    name = "lru"

    def __init__(self, capacity: int, layers: Sequence[int], experts: int) -> None:
        super().__init__(capacity, layers, experts)
        self._clock = 0

    def _visit(self, row: int, wanted: npt.NDArray[np.intp], uses: float | Array, tokens: int) -> None:
        self._score[row, wanted] = np.arange(self._clock, self._clock + len(wanted))
        self._clock += len(wanted)


class Layered(Lru):
    """A fixed set of the deepest layers, as many as get `SLOTS` slots each; among their experts the most recently used stay.

    Deep layers repeat themselves most from token to token. 20 slots hold one token's 16 and a little history.
    """

    name = "layered"
    SLOTS = 20

    def _visit(self, row: int, wanted: npt.NDArray[np.intp], uses: float | Array, tokens: int) -> None:
        if row >= len(self.layers) - max(1, self.capacity // min(self.SLOTS, self.experts)):
            super()._visit(row, wanted, uses, tokens)


class Lfu(Policy):
    """The most often used stay; old uses fade with a memory of about `MEMORY` tokens, and a rarer expert is not admitted."""

    name = "lfu"
    MEMORY = 256

    def __init__(self, capacity: int, layers: Sequence[int], experts: int) -> None:
        super().__init__(capacity, layers, experts)
        self._score.fill(0)

    def _visit(self, row: int, wanted: npt.NDArray[np.intp], uses: float | Array, tokens: int) -> None:
        self._score[row] *= (1 - 1 / self.MEMORY) ** tokens
        self._score[row, wanted] += uses


FADE = np.array([[0.0], [0.8], [0.99]])  # what is left of a use after one more token: the three memories of a forecast


@cache
def _fading(tokens: int) -> tuple[Array, Array]:
    """After a pass of so many tokens: what is left of older uses, and what a use by every token adds; spread evenly over the pass."""
    left = FADE**tokens
    return left, (1 - left) / (1 - FADE)


class Forecast(Policy):
    """Those stay that their layer is likeliest to ask for at its next visit: the default.

    The forecast is a linear regression, one per layer, learned while running. Its three inputs are an expert's rate of use
    at the last visit, over the last few and over about the last hundred; its target is the use at the next visit. Where a
    layer repeats itself recency gets the weight, where it does not frequency does, and layers that can be foretold best get
    the most slots. `START` are the weights before anything is known, worth `TRUST` visits: rounded from the released trace,
    and the same for every size. It keeps 2.6 MB of state for K3.
    """

    name = "forecast"
    PRIOR = (0.01, 0.01, 8.0)  # tokens without a use that stand before the first: one early use is not yet a habit
    START = (0.2, 0.06, 0.3)
    TRUST = (48.0, 48.0, 6.0)  # three visits of 16 experts; the long-term rates are small numbers
    LEARN = 0.99  # what is left of an observation after one more visit

    def __init__(self, capacity: int, layers: Sequence[int], experts: int) -> None:
        super().__init__(capacity, layers, experts)
        rows = len(self.layers)
        self._used = np.zeros((rows, 3, experts))  # faded counts
        self._seen = [(0.0, 0.0, 0.0)] * rows  # what a use by every token would have added up to
        self._moments = [[0.0] * 6 for _ in range(rows)]  # sums of rate x rate: 00, 01, 02, 11, 12, 22
        self._products = [[0.0] * 3 for _ in range(rows)]  # and of rate x use

    def _visit(self, row: int, wanted: npt.NDArray[np.intp], uses: float | Array, tokens: int) -> None:
        used, seen = self._used[row], self._seen[row]
        share = uses / tokens
        whole = [n + prior for n, prior in zip(seen, self.PRIOR, strict=True)]
        recent = used[:, wanted]
        if seen[0]:
            self._learn(row, used, (recent * share).sum(axis=1).tolist(), whole)
        left, gain = _fading(tokens)
        (l0, l1, l2), (g0, g1, g2) = left.ravel().tolist(), gain.ravel().tolist()
        n0, n1, n2 = seen
        self._seen[row] = n0, n1, n2 = n0 * l0 + g0, n1 * l1 + g1, n2 * l2 + g2
        used *= left
        used[:, wanted] = recent * left + gain * share
        w0, w1, w2 = self._weights(row)
        p0, p1, p2 = self.PRIOR
        np.matmul((w0 / (n0 + p0), w1 / (n1 + p1), w2 / (n2 + p2)), used, out=self._score[row])

    def _learn(self, row: int, used: Array, hits: list[float], whole: list[float]) -> None:
        """What the rates before this visit would have foretold, and what was used."""
        (aa, ab, ac), (_, bb, bc), (_, _, cc) = (used @ used.T).tolist()
        a, b, c = whole
        seen = (aa / (a * a), ab / (a * b), ac / (a * c), bb / (b * b), bc / (b * c), cc / (c * c))
        self._moments[row] = [self.LEARN * old + new for old, new in zip(self._moments[row], seen, strict=True)]
        self._products[row] = [self.LEARN * old + hit / n for old, hit, n in zip(self._products[row], hits, whole, strict=True)]

    def _weights(self, row: int) -> tuple[float, float, float]:
        """The regression's solution w of (TRUST + moments) w = TRUST START + products; numpy's solver takes longer than all the rest."""
        (m00, m01, m02, m11, m12, m22), (t0, t1, t2) = self._moments[row], self.TRUST
        b0, b1, b2 = (t * start + p for t, start, p in zip(self.TRUST, self.START, self._products[row], strict=True))
        m00, m11, m22 = m00 + t0, m11 + t1, m22 + t2
        l10, l20 = m01 / m00, m02 / m00
        d1, n12 = m11 - l10 * m01, m12 - l20 * m01
        l21 = n12 / d1
        d2 = m22 - l20 * m02 - l21 * n12
        y1 = b1 - l10 * b0
        y2 = b2 - l20 * b0 - l21 * y1
        w2 = y2 / d2
        w1 = y1 / d1 - l21 * w2
        return b0 / m00 - l10 * w1 - l20 * w2, w1, w2


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Forecast, Layered, Lfu, Lru)}
DEFAULT = Forecast.name


def make_policy(name: str, capacity: int, layers: Sequence[int], experts: int) -> Policy:
    """A fresh policy by name, with an empty cache of `capacity` experts."""
    return POLICIES[name](capacity, layers, experts)
