"""Pieces: how the tape is cut, and where each piece lies on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.weights.catalogue import TensorRef
from lilliput.weights.layout import Layout

Bytes = npt.NDArray[np.uint8]

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


def malformed(spec: PieceSpec, data: Bytes) -> str | None:
    """What is wrong with the frame of a packed piece; None for a sound one. A checksum says only that it is what somebody wrote."""
    if spec.kind == "k12":
        try:
            _core.Rows(spec.kind, [data], [spec.rows], spec.columns)
        except ValueError as error:
            return str(error)
    return None


def cut(rows: int, columns: int, *, whole: bool, piece_bytes: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """(first row, rows) of each piece of a matrix; `whole` keeps it in one (kv_b, which is held and used twice)."""
    step = rows if whole else max(piece_bytes // (2 * columns) // ROW_MULTIPLE, 1) * ROW_MULTIPLE
    return ((row, min(step, rows - row)) for row in range(0, rows, step))


def in_place(tensors: Mapping[str, TensorRef], layout: Layout, piece_bytes: int = PIECE_BYTES) -> list[PieceSpec]:
    """The tape as it lies in the shards: bf16 rows, in the order of use, the head last (tied: the embedding's rows)."""
    specs = []
    for name, of in layout.matrices().items():
        tensor = tensors[of]
        rows, columns = tensor.shape
        for row, n in cut(rows, columns, whole=is_held(name), piece_bytes=piece_bytes):
            offset = tensor.offset + 2 * columns * row
            specs.append(PieceSpec(name, row, n, columns, "bf16", tensor.file, offset, 2 * columns * n))
    return specs


def is_held(name: str) -> bool:
    """kv_b is used twice, around its layer's attention, so it is one piece and held meanwhile."""
    return name.endswith(".kv_b_proj.weight")
