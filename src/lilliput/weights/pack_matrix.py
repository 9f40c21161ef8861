"""What is packed: the matrices of a tape with their pieces in the shards, and how each will be stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.direct import Bytes, DirectFile, memory, room
from lilliput.weights.feed import Extent
from lilliput.weights.layout import Layout
from lilliput.weights.manifest import MOST_COLUMNS, aligned, k12_bytes
from lilliput.weights.pieces import in_place

Counts = npt.NDArray[np.int64]

SAMPLE = 1 << 16  # bytes of a matrix that its size is estimated from
SAMPLE_DOUBT = 5e-4  # escapes per weight that a sample may overlook; real weights have 1e-4 to 3e-4 in all
ONLY_ZEROS = bytes(16)  # the table of a matrix of zeros: with it all of a piece is zero bytes, and a hole on disk


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of the tape: `extents` in the shards of its pieces, `rows_of` [(first row, rows)] alike."""

    name: str
    rows: int
    columns: int
    rows_of: tuple[tuple[int, int], ...]
    extents: tuple[Extent, ...]

    @property
    def nbytes(self) -> int:
        """Of its bf16 rows."""
        return 2 * self.rows * self.columns

    def k12_bytes(self, escapes: int) -> int:
        return sum(k12_bytes(rows, self.columns) for _, rows in self.rows_of) + 4 * escapes


@dataclass(frozen=True, slots=True)
class Storage:
    """How a matrix is stored: "bf16" rows, or "k12" with its table of 16 high bytes."""

    kind: str
    table: bytes


def tape_matrices(checkpoint: Checkpoint, layout: Layout, piece_bytes: int) -> Iterator[Matrix]:
    """The matrices in the tape's order, the head last; with tied embeddings its rows are the embedding's."""
    for name, found in groupby(in_place(checkpoint.tensors, layout, piece_bytes), key=lambda piece: piece.name):
        pieces = [*found]
        rows_of = tuple((piece.row, piece.rows) for piece in pieces)
        extents = tuple(Extent(piece.file, piece.offset, piece.nbytes) for piece in pieces)
        yield Matrix(name, sum(piece.rows for piece in pieces), pieces[0].columns, rows_of, extents)


def fits(matrix: Matrix, nbytes: int) -> bool:
    """Whether all of its pieces can wait in a ring of memory for the histogram of the whole; nearly one may be lost at the ring's end."""
    rooms = [room(extent.nbytes) for extent in matrix.extents]
    return sum(rooms) + max(rooms) <= nbytes


def histogram(data: Bytes) -> Counts:
    """How often each value is a high byte."""
    counts = np.zeros(256, np.int64)
    _core.k12_histogram(counts, data)
    return counts


def storage(matrix: Matrix, counts: Counts, *, forced: bool) -> Storage:
    """K12 where it is smaller than the bf16 rows, or forced; exact, from the histogram of the whole matrix."""
    table = _table(counts)
    smaller = matrix.columns <= MOST_COLUMNS and matrix.k12_bytes(_escapes(counts, table)) < matrix.nbytes
    return Storage("k12", table) if smaller or forced else Storage("bf16", b"")


def _table(counts: Counts) -> bytes:
    return _core.k12_table(counts) if counts[1:].any() else ONLY_ZEROS


def _escapes(counts: Counts, table: bytes) -> int:
    return int(counts.sum() - counts[sorted(set(table))].sum())


def estimate(matrix: Matrix, files: Sequence[DirectFile], first: int, *, forced: bool) -> int:
    """Bytes on disk that the pieces from number `first` on will take, from a sample of the matrix; holes take none.

    On the safe side: the sample's escapes count twice and some more, and no zeros are hoped for inside of a piece.
    """
    present = [i for i in range(first, len(matrix.extents)) if not files[matrix.extents[i].file].is_hole(*_span(matrix.extents[i]))]
    if not present:
        return 0
    extent = matrix.extents[present[len(present) // 2]]
    nbytes = min(extent.nbytes, SAMPLE)
    middle = (extent.nbytes - nbytes) // 4 * 2
    counts = histogram(files[extent.file].read(extent.offset + middle, nbytes, memory(room(nbytes))))
    share = min(2 * _escapes(counts, _table(counts)) / (nbytes // 2) + SAMPLE_DOUBT, 1)
    total = 0
    for i in present:
        rows = matrix.rows_of[i][1]
        packed = k12_bytes(rows, matrix.columns) + 4 * int(share * rows * matrix.columns)
        total += aligned(packed if forced else min(packed, matrix.extents[i].nbytes))
    return total


def _span(extent: Extent) -> tuple[int, int]:
    return extent.offset, extent.nbytes


def stretches(holes: npt.NDArray[np.intp], end: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of what lies between `holes`, ascending numbers below `end`."""
    borders = [-1, *holes.tolist(), end]
    return ((a + 1, b) for a, b in pairwise(borders) if a + 1 < b)
