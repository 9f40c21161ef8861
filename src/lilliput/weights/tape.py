"""The tape: every trunk matrix as a fixed sequence of pieces, played once per pass from the first matrix to `lm_head`.

Pinned pieces stay in memory after their first reading; all others stream through a ring. Because the tape needs no knowledge of
the tokens, the reader runs ahead of the arithmetic as far as the ring allows: through layers, and across the border between two
passes. A caller asks for the matrices in the tape's order and multiplies with the pieces as they come by, with as many at once as
are there; where a piece came from cannot be told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.errors import ContentError, LilliputError
from lilliput.weights.disk import Disk
from lilliput.weights.layout import HEAD
from lilliput.weights.pieces import PieceSpec, malformed
from lilliput.weights.ring import Ring

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

STRETCH_SHARE = 4  # of the ring's memory, at most one in so many bytes is multiplied with at once


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of one matrix: rows `row` .. `row + rows`, stored as bf16 rows or K12 tiles."""

    row: int
    rows: int
    kind: str  # "bf16" or "k12"
    data: Bytes


class Stretch:
    """Pieces that follow each other in one matrix, at least one. All of a matrix are of one kind."""

    def __init__(self, pieces: Sequence[Piece], columns: int) -> None:
        self.pieces, self._columns = pieces, columns
        self._rows: _core.Rows | None = None  # checked on first use: a matrix that is held is not multiplied with this way

    def multiply(self, x: Array, y: Array) -> None:
        """y[:, rows of the stretch] = x Wᵀ for x [T, columns], y [T, all rows]."""
        first = self.pieces[0]
        if self._rows is None:
            self._rows = _core.Rows(first.kind, [piece.data for piece in self.pieces], [piece.rows for piece in self.pieces], self._columns)
        _core.matmul(y, x, self._rows, first.row)


@dataclass(slots=True)
class TapeStats:
    """Counters of a tape since it was made. Bytes include the margins that alignment adds."""

    pieces: int = 0  # consumed
    waits: int = 0  # times a piece was not there when its turn came
    waited_s: float = 0.0
    pass_bytes: int = 0  # read for the pass that plays, or played last
    bytes_consumed: int = 0  # read and multiplied with, all passes
    bytes_dropped: int = 0  # read, or asked for, and given up: behind the last pass, or by an abandoned one
    requested_ahead: int = 0  # pieces whose reading had been asked for before the piece in front of them was done


@dataclass(slots=True)
class _Flight:
    """A piece that was asked for: it lands in `data`, and reading it delivers `nbytes`, alignment included."""

    index: int
    ticket: int
    nbytes: int
    data: Bytes
    pinned: bool
    ahead: bool  # asked for before the piece in front of it was done


class Tape:
    """Plays `specs` in order, reading from files[spec.file] = (path, size).

    `pins` are indices of specs; `ring_bytes` must hold the largest other piece. `verify`: "first" checks a piece's checksum, if it
    has one, on its first read; "every" on each.
    """

    def __init__(
        self,
        disk: Disk,
        files: Sequence[tuple[Path, int]],
        specs: Sequence[PieceSpec],
        *,
        pins: Collection[int],
        ring_bytes: int,
        verify: str = "first",
    ) -> None:
        self._disk, self._specs, self._verify = disk, tuple(specs), verify
        self._files = [disk.add(path, size) for path, size in files]
        self._extents = [disk.extent(self._files[s.file], s.offset, s.nbytes) for s in self._specs]
        self._ranges = _ranges(self._specs)
        self._first_head = self._ranges[HEAD].start if HEAD in self._ranges else len(self._specs)
        # Places in memory are multiples of the largest alignment that a file asks for; lengths of extents are as well.
        align = max((disk.reader.alignment(file) for file in self._files), default=1)
        self._spaces = [padded(length, align) for _, length in self._extents]
        self._ring = Ring(ring_bytes // align * align)
        unpinned = [space for i, space in enumerate(self._spaces) if i not in pins]
        assert self._ring.size >= max(unpinned, default=0), "the plan gives the ring room for the largest piece"
        self._ring_memory = _core.Arena(self._ring.size) if unpinned else None
        self._ring_view = self._ring_memory.array() if self._ring_memory else np.empty(0, np.uint8)
        self._pin_at, total = {}, 0
        for i in sorted(pins):
            self._pin_at[i] = total
            total += self._spaces[i]
        self._pin_memory = _core.Arena(total) if total else None
        self._pin_view = self._pin_memory.array() if self._pin_memory else np.empty(0, np.uint8)
        self._loaded: dict[int, Piece] = {}  # pins that are there
        self._whole: dict[str, Stretch] = {}  # matrices all of whose pieces are pinned and there
        self._verified: set[int] = set()
        self._flights: deque[_Flight] = deque()
        self._playing = 0  # the piece whose turn is next
        self._stop = 0  # where the pass ends
        self._next_request = 0
        self._wrapped = False  # requests have reached the next pass
        self._more = False
        self._sound = True  # no interrupt has come between a change and the note of it
        self.stats = TapeStats()

    @property
    def planned_bytes(self) -> int:
        """What a pass with logits reads once all pins are there, alignment included."""
        return sum(self._delivered(i) for i in range(len(self._specs)) if i not in self._pin_at)

    def _delivered(self, index: int) -> int:
        return self._disk.delivered(self._files[self._specs[index].file], self._extents[index])

    def begin(self, *, head: bool, more: bool) -> None:
        """A pass begins. `head`: the last matrix will be asked for. `more`: another pass will follow, so read ahead into it."""
        if self._playing != self._stop or not self._sound:
            self._drop_flights()
        if not self._wrapped:
            self._next_request = 0
        self._playing, self._wrapped, self._more = 0, False, more
        self._stop = len(self._specs) if head else self._first_head
        self.stats.pass_bytes = 0
        self._request_ahead()

    def multiply(self, name: str, x: Array, y: Array) -> None:
        """y = x Wᵀ for the next matrix: x [T, columns], y [T, rows]."""
        whole = self._whole.get(name)
        if whole is None:
            for stretch in self.stretches(name):
                stretch.multiply(x, y)
        else:
            self._check_turn(name)
            whole.multiply(x, y)
            self.stats.pieces += len(whole.pieces)
            self._advance(whole)

    def stretches(self, name: str) -> Iterator[Stretch]:
        """The pieces of the next matrix, all that are there at a time. A stretch is valid until the one behind it is asked for."""
        wanted = self._check_turn(name)
        while self._playing < wanted.stop:
            stretch, regions = self._take(name, range(self._playing, wanted.stop))
            yield stretch  # a caller that does not come back has abandoned the pass: `begin` sees where the tape stands
            self._sound = False
            for _ in range(regions):
                self._ring.give_back()
            self._advance(stretch)

    def _check_turn(self, name: str) -> range:
        """The pieces of a matrix, whose turn it must be."""
        wanted = self._ranges[name]
        if self._playing != wanted.start or self._stop < wanted.stop:
            at = self._specs[self._playing].name if self._playing < self._stop else "its end"
            raise AssertionError(f"the tape is at {at}, not at {name}")
        return wanted

    def _advance(self, stretch: Stretch) -> None:
        self._playing += len(stretch.pieces)
        self._request_ahead()

    @contextmanager
    def hold(self, name: str) -> Iterator[Piece]:
        """The next matrix, which is a single piece, valid until the block is left."""
        stretches = self.stretches(name)
        (piece,) = next(stretches).pieces
        yield piece
        for _ in stretches:
            raise AssertionError(f"{name} is held whole, so it must be one piece")

    def close(self) -> None:
        """End the reads; no piece may be used any more."""
        self._drop_flights()
        self._loaded.clear()
        self._whole.clear()

    def _take(self, name: str, indices: range) -> tuple[Stretch, int]:
        """The first of the matrix's pieces and those behind it that are there already, and how many regions of the ring they hold.

        No more than a share of the ring: while the arithmetic holds all of it, nothing can be read.
        """
        pieces: list[Piece] = []
        regions = held = 0
        for index in indices:
            piece = self._loaded.get(index)
            if piece is None:
                if pieces and not self._is_there(index, held):
                    break
                flight, piece = self._land(index)
                if not flight.pinned:
                    regions += 1
                    held += self._spaces[index]
            pieces.append(piece)
        self.stats.pieces += len(pieces)
        stretch = Stretch(pieces, self._specs[indices.start].columns)
        if not regions and len(pieces) == len(self._ranges[name]):
            self._whole[name] = stretch
        return stretch, regions

    def _is_there(self, index: int, held: int) -> bool:
        """Whether a further piece can be had at once, beside `held` bytes of the ring."""
        if not self._flights or not self._disk.reader.ready(self._flights[0].ticket):
            return False
        return self._flights[0].pinned or held + self._spaces[index] <= self._ring.size // STRETCH_SHARE

    def _land(self, index: int) -> tuple[_Flight, Piece]:
        if not self._flights:
            self._request_ahead()
        flight = self._flights[0]
        assert flight.index == index
        spec = self._specs[index]
        if not self._disk.reader.ready(flight.ticket):
            self.stats.waits += 1
        self.stats.requested_ahead += flight.ahead
        try:
            self.stats.waited_s += self._disk.wait(flight.ticket, lambda: self._describe(spec))
        except LilliputError:
            self._flights.popleft()  # the ticket is gone; after an interrupt it is not, and the flight is dropped later
            raise
        self._flights.popleft()
        self._check(index, flight.data)
        self.stats.pass_bytes += flight.nbytes
        self.stats.bytes_consumed += flight.nbytes
        piece = self._piece(spec, flight.data)
        if flight.pinned:
            self._loaded[index] = piece
        return flight, piece

    def _piece(self, spec: PieceSpec, data: Bytes) -> Piece:
        return Piece(spec.row, spec.rows, spec.kind, data)

    def _check(self, index: int, data: Bytes) -> None:
        spec = self._specs[index]
        fault = None
        if spec.checksum is not None and (index not in self._verified or self._verify == "every"):
            fault = "does not match its checksum" if _core.checksum(data) != spec.checksum else None
        if wrong := malformed(spec, data):  # also where it matched once: kernels rely on it
            fault = fault or f"is not one ({wrong})"
        if fault:
            path = self._disk.path(self._files[spec.file])
            what = f"{path}: {self._describe(spec)} {fault}"
            raise ContentError(f"{what}: do not use any output; remove {path.parent} and run `lilliput pack` again")
        self._verified.add(index)

    def _describe(self, spec: PieceSpec) -> str:
        return f"piece at byte {spec.offset} (rows {spec.row} to {spec.row + spec.rows - 1} of {spec.name})"

    def _request_ahead(self) -> None:
        """Ask for pieces in the order of their turns, as far as the ring has room."""
        self._sound = False
        if len(self._loaded) < len(self._specs):
            self._ask()
        self._sound = True

    def _ask(self) -> None:
        while True:
            if self._next_request == (self._first_head if self._wrapped else self._stop):
                if self._wrapped or not self._more:
                    return
                self._wrapped, self._next_request = True, 0
                continue
            index = self._next_request
            if index not in self._loaded and not (index in self._pin_at and self._wrapped) and not self._request(index):
                return
            self._next_request += 1

    def _request(self, index: int) -> bool:
        spec, (begin, _) = self._specs[index], self._extents[index]
        pinned = index in self._pin_at
        if pinned:
            assert self._pin_memory is not None
            memory, view, at = self._pin_memory, self._pin_view, self._pin_at[index]
        else:
            place = self._ring.take(self._spaces[index])
            if place is None:
                return False
            assert self._ring_memory is not None
            memory, view, at = self._ring_memory, self._ring_view, place
        ticket = self._disk.submit(self._files[spec.file], spec.offset, spec.nbytes, memory.address + at, urgent=False)
        skip = at + spec.offset - begin
        self._flights.append(
            _Flight(index, ticket, self._delivered(index), view[skip : skip + spec.nbytes], pinned, self._wrapped or self._playing < index)
        )
        return True

    def _drop_flights(self) -> None:
        """Give up whatever is being read, also what an interrupt kept us from noting."""
        self._disk.cancel_all(urgent=False)  # no others read ahead
        self.stats.bytes_dropped += sum(flight.nbytes for flight in self._flights)
        self._flights.clear()
        self._ring.clear()
        self._wrapped, self._next_request = False, 0


def _ranges(specs: Sequence[PieceSpec]) -> dict[str, range]:
    """Which pieces belong to a matrix: they follow each other."""
    starts: dict[str, int] = {}
    stops: dict[str, int] = {}
    for i, spec in enumerate(specs):
        starts.setdefault(spec.name, i)
        stops[spec.name] = i + 1
    return {name: range(starts[name], stops[name]) for name in starts}


def padded(nbytes: int, multiple: int) -> int:
    return -(-nbytes // multiple) * multiple
