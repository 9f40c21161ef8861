"""Routed experts: read in place from the shards as soon as the router has decided, kept by a policy, applied as they land.

A layer asks once for all experts that its tokens chose, in ascending id; each is read once however many tokens chose it. Those
that are not in the cache are read ahead of everything else. The arithmetic takes whichever expert is there, and holds a result
back until all lower ids are added, so that the order of arrival cannot show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.errors import LilliputError
from lilliput.weights.checkpoint import ExpertTable
from lilliput.weights.disk import Disk
from lilliput.weights.layout import ExpertSpec
from lilliput.weights.policy import DEFAULT, Policy, make_policy
from lilliput.weights.tape import padded

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Parts = tuple[Bytes, ...]  # the six tensors of one expert, in the order of ExpertSpec.PARTS

MOST_ALIGNMENT = 4096  # that a disk asks for
HELD_RESULTS = 4  # results that may wait for lower ids


@dataclass(slots=True)
class ExpertStats:
    """Counters since the start. A hit is an expert that cost no read; bytes include the margins that alignment adds."""

    hits: int = 0
    reads: int = 0
    bytes_read: int = 0
    waits: int = 0
    waited_s: float = 0.0
    early: int = 0  # results that were ready before those of lower ids


@dataclass(slots=True)
class _Landing:
    """An expert on its way: its bytes are being read into `slot`."""

    slot: int
    tickets: list[int]
    parts: Parts


class Experts:
    """`slots` experts are kept by `policy`; `window` more can be in flight without being kept. Memory is taken at once.

    `nan_scales` counts MXFP4 groups whose scale byte is 255 in the experts used so far.
    """

    def __init__(
        self,
        disk: Disk,
        files: Sequence[tuple[Path, int]],
        table: ExpertTable,
        spec: ExpertSpec,
        *,
        slots: int,
        window: int,
        policy: str = DEFAULT,
    ) -> None:
        self.spec, self.stats, self.nan_scales = spec, ExpertStats(), 0
        self._disk, self._table = disk, table
        self._files = [disk.add(path, size) for path, size in files]
        self._rows = {layer: row for row, layer in enumerate(spec.layers)}
        self._slot_bytes = slot_bytes(spec)
        slots = min(slots, len(spec.layers) * spec.num_experts)
        self._memory = _core.Arena((slots + window) * self._slot_bytes)
        self._view = self._memory.array()
        self._policy: Policy | None = make_policy(policy, slots, spec.layers, spec.num_experts) if slots else None
        self._planned = slots
        self.window = window
        self._resident: dict[tuple[int, int], tuple[int, Parts]] = {}  # kept experts that are there: slot, tensors
        self._free = deque(range(slots))
        self._window = deque(range(slots, slots + window))
        self._open: Chosen | None = None

    def request(self, layer: int, ids: Ids) -> Chosen:
        """Ask for the experts `ids` [N, k] of a layer; reading begins at once. One request at a time."""
        self.abandon()
        self._open = Chosen(self, layer, ids)
        return self._open

    def abandon(self) -> None:
        """Give up what the last request has not used yet (a pass was abandoned)."""
        if self._open is not None:
            self._open.cancel()
            self._open = None

    @property
    def slot_bytes(self) -> int:
        """Memory of one expert."""
        return self._slot_bytes

    @property
    def kept(self) -> int:
        """How many experts may be kept now."""
        return self._policy.capacity if self._policy is not None else 0

    def resize(self, slots: int) -> None:
        """Keep at most `slots` experts from now on (no more than were planned); the memory of those that go returns to the system."""
        if self._policy is None:
            return
        self.abandon()
        for key in self._policy.resize(min(slots, self._planned)):
            slot, _ = self._resident.pop(key)
            self._free.append(slot)
            self._memory.give_back(slot * self._slot_bytes, self._slot_bytes)

    def close(self) -> None:
        self.abandon()
        self._resident.clear()

    def admit(self, layer: int, ids: list[int], uses: list[int], tokens: int) -> dict[int, int]:
        """Tell the policy of a request: for each expert that it wants kept and that is not there yet, the slot for it."""
        if self._policy is None:
            return {}
        verdict = self._policy.request(layer, ids, uses, tokens)
        slots = {}
        for expert, displaced in verdict.admitted.items():
            slots[expert] = self._free.popleft() if displaced is None else self._resident.pop(displaced)[0]
        return slots

    def resident(self, layer: int, expert: int) -> Parts | None:
        kept = self._resident.get((layer, expert))
        return kept[1] if kept else None

    def keep(self, layer: int, expert: int, landing: _Landing) -> None:
        self._resident[layer, expert] = (landing.slot, landing.parts)

    def forget(self, layer: int, expert: int, slot: int) -> None:
        """An admitted expert did not land."""
        assert self._policy is not None
        self._policy.forget(layer, expert)
        self._free.append(slot)

    def take_window(self) -> int | None:
        return self._window.popleft() if self._window else None

    def give_window(self, slot: int) -> None:
        self._window.append(slot)

    def land(self, layer: int, expert: int, slot: int) -> _Landing:
        """Start reading an expert into a slot: one extent where its tensors are adjacent in a shard, else several."""
        row = self._rows[layer]
        files, offsets = self._table.file[row, expert].tolist(), self._table.offset[row, expert].tolist()
        parts: list[Bytes] = [self._view[:0]] * len(files)
        tickets, at = [], slot * self._slot_bytes
        for run in _adjacent(files, offsets, self.spec.part_bytes):
            file, offset = self._files[files[run[0]]], offsets[run[0]]
            nbytes = sum(self.spec.part_bytes[p] for p in run)
            begin, length = self._disk.extent(file, offset, nbytes)
            tickets.append(self._disk.submit(file, offset, nbytes, self._memory.address + at, urgent=True))
            place = at + offset - begin
            for p in run:
                parts[p] = self._view[place : place + self.spec.part_bytes[p]]
                place += self.spec.part_bytes[p]
            self.stats.bytes_read += self._disk.delivered(file, (begin, length))
            at += padded(length, MOST_ALIGNMENT)
        self.stats.reads += 1
        return _Landing(slot, tickets, tuple(parts))

    def is_there(self, landing: _Landing) -> bool:
        return all(self._disk.reader.ready(ticket) for ticket in landing.tickets)

    def wait(self, layer: int, expert: int, landing: _Landing) -> None:
        if not self.is_there(landing):
            self.stats.waits += 1
        while landing.tickets:  # a ticket leaves the list once it is answered, not by an interrupt: what is left is cancelled
            try:
                self.stats.waited_s += self._disk.wait(landing.tickets[0], lambda: f"expert {expert} of layer {layer}")
            except LilliputError:
                landing.tickets.pop(0)
                raise
            landing.tickets.pop(0)

    def cancel(self, landing: _Landing) -> None:
        for ticket in landing.tickets:
            self._disk.cancel(ticket)


class Chosen:
    """The experts that one layer's tokens chose, from the request to the sum."""

    def __init__(self, experts: Experts, layer: int, ids: Ids) -> None:
        self._experts, self._layer, self._ids = experts, layer, ids
        unique, uses = np.unique(ids, return_counts=True)
        self._order: list[int] = unique.tolist()
        self._admitted = experts.admit(layer, self._order, uses.tolist(), len(ids))
        self._landings: dict[int, _Landing] = {}
        self._waiting = deque(e for e in self._order if experts.resident(layer, e) is None)  # not yet asked for
        experts.stats.hits += len(self._order) - len(self._waiting)
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
        experts, spec = self._experts, self._experts.spec
        y = np.zeros_like(x)
        early: dict[int, tuple[Array, Ids, Array]] = {}  # results whose turn has not come
        left = deque(self._order)
        while left:
            batch = self._next(left, early)
            if batch[0] == left[0]:
                chosen = [(*self._tokens(expert, weights), self._parts(expert)) for expert in batch]
                experts.nan_scales += _core.experts(y, x, chosen, spec.width, spec.latent, beta, linear_beta)
                for _ in batch:
                    self._done(left.popleft())
            else:
                (expert,) = batch
                rows, share = self._tokens(expert, weights)
                values = np.empty((len(rows), spec.latent), np.float32)
                experts.nan_scales += _core.expert(values, x, rows, self._parts(expert), spec.width, spec.latent, beta, linear_beta)
                early[expert] = (values, rows, share)
                experts.stats.early += 1
                self._done(expert)
            while left and left[0] in early:
                _core.accumulate(y, *early.pop(left.popleft()))
        _core.finish(y)
        return y

    def _tokens(self, expert: int, weights: Array) -> tuple[Ids, Array]:
        """The tokens that chose an expert, and with which weights."""
        places = np.nonzero(self._ids == expert)
        return places[0].astype(np.int32), np.ascontiguousarray(weights[places])

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
        return expert not in self._waiting if landing is None else self._experts.is_there(landing)

    def _parts(self, expert: int) -> Parts:
        landing = self._landings.get(expert)
        if landing is None:
            kept = self._experts.resident(self._layer, expert)
            assert kept is not None
            return kept
        self._experts.wait(self._layer, expert, landing)
        return landing.parts

    def _done(self, expert: int) -> None:
        landing = self._landings.pop(expert, None)
        if landing is None:
            return
        if expert in self._admitted:
            self._experts.keep(self._layer, expert, landing)
        else:
            self._experts.give_window(landing.slot)
        self._ask()

    def cancel(self) -> None:
        """Stop what is in flight and put every slot back where it belongs."""
        for expert, landing in self._landings.items():
            self._experts.cancel(landing)
            if expert not in self._admitted:
                self._experts.give_window(landing.slot)
        for expert, slot in self._admitted.items():
            if self._experts.resident(self._layer, expert) is None:
                self._experts.forget(self._layer, expert, slot)
        self._landings.clear()
        self._admitted.clear()
        self._waiting.clear()


def slot_bytes(spec: ExpertSpec) -> int:
    """Memory for one expert, wherever its tensors lie: in the worst case six extents, each widened at both ends."""
    return sum(padded(nbytes, MOST_ALIGNMENT) + MOST_ALIGNMENT for nbytes in spec.part_bytes)


def _adjacent(files: list[int], offsets: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """Part numbers in runs that lie end to end in one file."""
    runs: list[list[int]] = []
    for p in sorted(range(len(files)), key=lambda p: (files[p], offsets[p])):
        last = runs[-1][-1] if runs else None
        if last is not None and files[last] == files[p] and offsets[last] + sizes[last] == offsets[p]:
            runs[-1].append(p)
        else:
            runs.append([p])
    return runs
