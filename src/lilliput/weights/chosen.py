"""One layer's experts, from the request to the sum: applied as they land, as many at once as are there, added in ascending id.

The arithmetic takes whichever expert is there, and holds a result back until all lower ids are added, so that the order of arrival
cannot show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lilliput import _core

if TYPE_CHECKING:
    from lilliput.weights.experts import Experts

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

HELD_RESULTS = 4  # results that may wait for lower ids


@dataclass(slots=True)
class Landing:
    """An expert on its way: its bytes are being read into `slot`."""

    slot: int
    tickets: list[int]
    weights: _core.Expert


class Chosen:
    """The experts that one layer's tokens chose, from the request to the sum."""

    def __init__(self, experts: Experts, layer: int, ids: Ids) -> None:
        self._experts, self._layer = experts, layer
        self.done = False
        flat = ids.ravel()
        self._by_expert = np.argsort(flat, kind="stable")  # of all choices; tokens ascending
        self._rows = (self._by_expert // ids.shape[1]).astype(np.int32)
        of_expert = flat[self._by_expert]
        borders = [0, *(np.flatnonzero(of_expert[1:] != of_expert[:-1]) + 1).tolist(), len(flat)]
        self._order: list[int] = of_expert[borders[:-1]].tolist()
        self._choices = {e: slice(*ends) for e, ends in zip(self._order, pairwise(borders), strict=True)}
        self._uses = [b - a for a, b in pairwise(borders)]
        self._tokens = len(ids)
        self._admitted: dict[int, int] = {}  # those that will stay, with their slots
        self._landings: dict[int, Landing] = {}
        self._kept: dict[int, _core.Expert] = {}  # those that were there already
        self._waiting: deque[int] = deque()  # those not yet asked for

    def start(self) -> None:
        """Decide which experts stay, and ask for the first."""
        experts, layer = self._experts, self._layer
        self._admitted = experts.admit(layer, self._order, self._uses, self._tokens)
        self._kept = {e: weights for e in self._order if (weights := experts.resident(layer, e)) is not None}
        self._waiting = deque(e for e in self._order if e not in self._kept)
        experts.stats.hits += len(self._kept)
        self._ask()

    def _ask(self) -> None:
        """Ask for the next experts, ascending, while there is room for them."""
        while self._waiting:
            expert = self._waiting[0]
            slot = self._admitted[expert] if expert in self._admitted else self._experts.take_window()
            if slot is None:
                return
            self._waiting.popleft()
            self._landings[expert] = self._experts.land(self._layer, expert, slot)

    def apply(self, weights: Array, x: Array, beta: float, linear_beta: float | None) -> Array:
        """sum_e weight_e · w2_e situ(w1_e x, w3_e x) per token, ascending expert id: x [N, latent] → [N, latent]; weights [N, k]."""
        experts, latent = self._experts, self._experts.spec.latent
        y = np.zeros_like(x)
        shares = weights.ravel()[self._by_expert]
        early: dict[int, tuple[Array, Ids, Array]] = {}  # results whose turn has not come
        left = deque(self._order)
        while left:
            batch = self._next(left, early)
            if batch[0] == left[0]:
                places = [self._choices[expert] for expert in batch]
                chosen = [(self._rows[at], shares[at], self._weights(expert)) for expert, at in zip(batch, places, strict=True)]
                _core.experts(y, x, chosen, beta, linear_beta)
                for _ in batch:
                    self._done(left.popleft())
            else:
                (expert,) = batch
                rows = self._rows[self._choices[expert]]
                values = np.empty((len(rows), latent), np.float32)
                _core.expert(values, x, rows, self._weights(expert), beta, linear_beta)
                early[expert] = (values, rows, shares[self._choices[expert]])
                experts.stats.early += 1
                self._done(expert)
            while left and left[0] in early:
                _core.accumulate(y, *early.pop(left.popleft()))
        _core.finish(y)
        self.done = True
        return y

    def _next(self, left: Sequence[int], early: Collection[int]) -> list[int]:
        """What to apply now, of those that are `left` and not `early`: the lowest and all behind it that are there; or, where the lowest
        is not, another one that is, whose result can be held back; or else the lowest alone, to wait for.

        No more than half the window at once: while the arithmetic holds all of it, nothing can be read.
        """
        batch: list[int] = []
        window = 0
        for expert in left:
            if expert in early or not self._is_there(expert):
                break
            if expert in self._landings and expert not in self._admitted:
                window += 1
                if batch and window > self._experts.window // 2:
                    break
            batch.append(expert)
        if not batch and len(early) < HELD_RESULTS:
            batch = [next((expert for expert in left if expert not in early and self._is_there(expert)), left[0])]
        return batch or [left[0]]

    def _is_there(self, expert: int) -> bool:
        landing = self._landings.get(expert)
        return expert in self._kept if landing is None else self._experts.is_there(landing)

    def _weights(self, expert: int) -> _core.Expert:
        landing = self._landings.get(expert)
        if landing is None:
            return self._kept[expert]
        self._experts.wait(self._layer, expert, landing)
        self._experts.look_through(self._layer, expert, landing)
        return landing.weights

    def _done(self, expert: int) -> None:
        landing = self._landings.pop(expert, None)
        if landing is None:
            return
        if expert in self._admitted:
            self._experts.keep(self._layer, expert, landing)
        else:
            self._experts.give_window(landing.slot)
        self._ask()
