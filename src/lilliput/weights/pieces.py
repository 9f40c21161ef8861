"""Pieces: how the tape is cut, and where each piece lies on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PIECE_BYTES = 4 << 20  # of bf16 rows
ROW_MULTIPLE = 4  # kernels take rows four at a time


@dataclass(frozen=True, slots=True)
class PieceSpec:
    """`rows` consecutive rows of a matrix from `row` on, stored as `kind` ("bf16" rows or "k12" tiles) in `nbytes` bytes of a file.

    `file` is an index into the tape's files. `checksum` is None where none is known (rows in the shards).
    """

    name: str
    row: int
    rows: int
    columns: int
    kind: str
    file: int
    offset: int
    nbytes: int
    checksum: int | None = None


def cut(rows: int, columns: int, *, whole: bool, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """(first row, rows) of each piece of a matrix; `whole` keeps it in one (kv_b, which is held and used twice)."""
    step = rows if whole else max(piece_bytes // (2 * columns) // ROW_MULTIPLE, 1) * ROW_MULTIPLE
    return ((row, min(step, rows - row)) for row in range(0, rows, step))
