"""The tape: every trunk matrix as a fixed sequence of pieces, played once per pass from the first matrix to `lm_head`.

A caller asks for the matrices in the tape's order and multiplies with each piece as it comes by; whether a piece stays in
memory or is read again for every pass cannot be told from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.weights.checkpoint import TensorRef
from lilliput.weights.files import Bytes, ShardFiles

Array = npt.NDArray[np.float32]

PIECE_BYTES = 4 << 20
ROW_MULTIPLE = 4  # kernels take rows four at a time


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of one matrix: rows `row` .. `row + rows` of `columns` weights, stored as bf16 rows or K12 tiles."""

    row: int
    rows: int
    kind: str  # "bf16" or "k12"
    data: Bytes

    def multiply(self, x: Array, y: Array) -> None:
        """y[:, row : row + rows] = x Wᵀ for x [T, columns], y [T, all rows]."""
        multiply = _core.matmul_bf16 if self.kind == "bf16" else _core.matmul_k12
        multiply(y, x, self.data, self.rows, self.row)


@dataclass(frozen=True, slots=True)
class TapeEntry:
    """One matrix of the tape: where its bf16 rows lie, and the first row of each piece."""

    name: str
    tensor: TensorRef
    starts: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.shape[0], self.tensor.shape[1]

    def extents(self) -> Iterator[tuple[int, int]]:
        """(first row, rows) of every piece."""
        ends = (*self.starts[1:], self.shape[0])
        return ((start, end - start) for start, end in zip(self.starts, ends, strict=True))


def tape_entry(name: str, tensor: TensorRef, *, whole: bool = False, piece_bytes: int = PIECE_BYTES) -> TapeEntry:
    """Cut a matrix into pieces of about `piece_bytes`; `whole` keeps it in one (kv_b, which is used twice)."""
    rows, columns = tensor.shape
    step = rows if whole else max(piece_bytes // (2 * columns) // ROW_MULTIPLE, 1) * ROW_MULTIPLE
    return TapeEntry(name, tensor, tuple(range(0, rows, step)))


class Tape:
    """Plays the entries in order. `resident` keeps every piece after its first reading."""

    def __init__(self, shards: ShardFiles, entries: Sequence[TapeEntry], *, resident: bool) -> None:
        self._shards, self._entries, self._resident = shards, tuple(entries), resident
        self._kept: dict[tuple[str, int], Piece] = {}
        self._next = 0
        self._buffer: Bytes = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        return sum(entry.tensor.nbytes for entry in self._entries)

    def rewind(self) -> None:
        """A pass begins: the next matrix asked for is the first."""
        self._next = 0

    def pieces(self, name: str) -> Iterator[Piece]:
        """The pieces of the next matrix. A piece is valid until the one after it is asked for."""
        entry = self._entries[self._next] if self._next < len(self._entries) else None
        if entry is None or entry.name != name:
            raise AssertionError(f"the tape is at {entry.name if entry else 'its end'}, not at {name}")
        self._next += 1
        for row, rows in entry.extents():
            yield self._piece(entry, row, rows)

    @contextmanager
    def hold(self, name: str) -> Iterator[Piece]:
        """The next matrix as one piece, valid until the block is left."""
        (piece,) = self.pieces(name)
        yield piece

    def _piece(self, entry: TapeEntry, row: int, rows: int) -> Piece:
        kept = self._kept.get((entry.name, row))
        if kept is not None:
            return kept
        stride = 2 * entry.shape[1]
        nbytes = rows * stride
        if self._resident:
            data = np.empty(nbytes, np.uint8)
        else:
            if len(self._buffer) < nbytes:
                self._buffer = np.empty(nbytes, np.uint8)
            data = self._buffer[:nbytes]
        self._shards.read_into(entry.tensor.file, entry.tensor.offset + row * stride, data)
        piece = Piece(row, rows, "bf16", data)
        if self._resident:
            self._kept[entry.name, row] = piece
        return piece
