"""Routed experts: read in place from the shards as soon as the router has decided, kept by a policy, applied as they land.

A layer asks once for all experts that its tokens chose, in ascending id; each is read once however many tokens chose it. Those
that are not in the cache are read ahead of everything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.errors import LilliputError
from lilliput.weights.checkpoint import ExpertTable
from lilliput.weights.chosen import Chosen, Ids, Landing
from lilliput.weights.disk import Disk
from lilliput.weights.layout import ExpertSpec
from lilliput.weights.policy import DEFAULT, Policy, make_policy
from lilliput.weights.tape import padded

Bytes = npt.NDArray[np.uint8]

MOST_ALIGNMENT = 4096  # that a disk asks for


@dataclass(slots=True)
class ExpertStats:
    """Counters since the start. A hit is an expert that cost no read; bytes include the margins that alignment adds."""

    hits: int = 0
    reads: int = 0
    bytes_read: int = 0
    waits: int = 0
    waited_s: float = 0.0
    early: int = 0  # results that were ready before those of lower ids


class Experts:
    """`slots` experts are kept by `policy`; `window` more can be in flight without being kept. Memory is taken at once."""

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
        self.spec, self.stats = spec, ExpertStats()
        self._nan_scales: dict[tuple[int, int], int] = {}  # of the experts that have any
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
        self._resident: dict[tuple[int, int], tuple[int, _core.Expert]] = {}  # kept experts that are there, with their slots
        self._free = deque(range(slots))
        self._window = deque(range(slots, slots + window))
        self._open: Chosen | None = None
        self._sound = True  # no interrupt has come while the policy's word was carried out

    def request(self, layer: int, ids: Ids) -> Chosen:
        """Ask for the experts `ids` [N, k] of a layer; reading begins at once. One request at a time."""
        self.abandon()
        self._open = chosen = Chosen(self, layer, ids)
        chosen.start()
        return chosen

    def abandon(self) -> None:
        """Give up what the last request has not used yet (a pass was abandoned): every slot goes back to where it belongs.

        What the request noted of itself is not relied on: whatever ended it may have come between a change and the note of it.
        """
        if self._sound and (self._open is None or self._open.done):
            self._open = None
            return
        self._disk.cancel_all(urgent=True)  # which no others are
        if self._policy is not None:
            self._drop(self._policy.restore(self._resident))
        used = {slot for slot, _ in self._resident.values()}
        self._free = deque(slot for slot in range(self._planned) if slot not in used)
        self._window = deque(range(self._planned, self._planned + self.window))
        self._open, self._sound = None, True

    @property
    def slot_bytes(self) -> int:
        """Memory of one expert."""
        return self._slot_bytes

    @property
    def nan_scales(self) -> int:
        """MXFP4 groups whose scale byte is 255 in the experts used so far; each is one, however often it was used or read."""
        return sum(tuple(self._nan_scales.values()))  # a pass of another thread may find more meanwhile

    @property
    def kept(self) -> int:
        """How many experts may be kept now."""
        return self._policy.capacity if self._policy is not None else 0

    def resize(self, slots: int) -> None:
        """Keep at most `slots` experts from now on (no more than were planned); the memory of those that go returns to the system."""
        if self._policy is None:
            return
        self.abandon()
        self._sound = False
        self._drop(self._policy.resize(min(slots, self._planned)))
        self._sound = True

    def _drop(self, keys: Sequence[tuple[int, int]]) -> None:
        """Their memory returns to the system."""
        for key in keys:
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

    def resident(self, layer: int, expert: int) -> _core.Expert | None:
        kept = self._resident.get((layer, expert))
        return kept[1] if kept else None

    def keep(self, layer: int, expert: int, landing: Landing) -> None:
        self._resident[layer, expert] = (landing.slot, landing.weights)

    def take_window(self) -> int | None:
        return self._window.popleft() if self._window else None

    def give_window(self, slot: int) -> None:
        self._window.append(slot)

    def land(self, layer: int, expert: int, slot: int) -> Landing:
        """Start reading an expert into a slot: one extent where its tensors are adjacent in a shard, else several."""
        row = self._rows[layer]
        files, offsets = self._table.file[row, expert].tolist(), self._table.offset[row, expert].tolist()
        places = [0] * len(files)
        tickets, at = [], slot * self._slot_bytes
        for run in _adjacent(files, offsets, self.spec.part_bytes):
            file, offset = self._files[files[run[0]]], offsets[run[0]]
            nbytes = sum(self.spec.part_bytes[p] for p in run)
            begin, length = self._disk.extent(file, offset, nbytes)
            tickets.append(self._disk.submit(file, offset, nbytes, self._memory.address + at, urgent=True))
            place = at + offset - begin
            for p in run:
                places[p] = place
                place += self.spec.part_bytes[p]
            self.stats.bytes_read += self._disk.delivered(file, (begin, length))
            at += padded(length, MOST_ALIGNMENT)
        self.stats.reads += 1
        return Landing(slot, tickets, _core.Expert(self._view, places, self.spec.width, self.spec.latent))

    def is_there(self, landing: Landing) -> bool:
        return all(self._disk.reader.ready(ticket) for ticket in landing.tickets)

    def wait(self, layer: int, expert: int, landing: Landing) -> None:
        if not self.is_there(landing):
            self.stats.waits += 1
        while landing.tickets:  # a ticket leaves the list once it is answered, not by an interrupt: what is left is cancelled
            try:
                self.stats.waited_s += self._disk.wait(landing.tickets[0], lambda: f"expert {expert} of layer {layer}")
            except LilliputError:
                landing.tickets.pop(0)
                raise
            landing.tickets.pop(0)

    def look_through(self, layer: int, expert: int, landing: Landing) -> None:
        """Once for each that landed, before its first use: what stays in memory stays as it is."""
        bad = landing.weights.nan_scales()
        if bad:
            self._nan_scales[layer, expert] = bad


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
