"""Rows of the trunk, in place and packed, a stretch of the tape at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle as over_and_over

import numpy as np

from lilliput import _bench, _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.dense import dense_rivals
from lilliput.bench.kernels.group import U8, Cycle, Group, bf16_weights, checksum, peak, reading, values
from lilliput.model.config import Config
from lilliput.model.layout import layout
from lilliput.weights.layout import HEAD, TensorSpec
from lilliput.weights.pieces import cut, is_held
from lilliput.weights.tape import padded

TOKENS = (1, 4, 64, 512)
PIECE_ALIGNMENT = 64
STRETCH = 8  # pieces multiplied with at once: the quarter of a ring of 128 MB


def trunk_matrices(config: Config) -> list[TensorSpec]:
    """The tape's matrices of every layer with experts, in order; of all layers where none has. Without kv_b and the head."""
    found = [t for t in layout(config).tape() if t.name != HEAD and not is_held(t.name)]
    sparse = [t for t in found if config.is_moe(int(t.name.split(".")[2]))]
    return sparse or found


@dataclass(frozen=True, slots=True)
class Piece:
    row: int
    rows: int
    columns: int
    bf16: U8
    k12: U8


@dataclass(frozen=True, slots=True)
class Stretch:
    """Pieces of one matrix in one storage."""

    row: int
    rows: int
    columns: int
    data: _core.Rows

    @staticmethod
    def of(kind: str, pieces: Sequence[Piece]) -> Stretch:
        row, columns, rows = pieces[0].row, pieces[0].columns, [p.rows for p in pieces]
        return Stretch(row, sum(rows), columns, _core.Rows(kind, [getattr(p, kind) for p in pieces], rows, columns))

    @property
    def weights(self) -> int:
        return self.rows * self.columns


def _stretches(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces that follow each other, `STRETCH` at most."""
    found: list[list[Piece]] = []
    for piece in pieces:
        last = found[-1][-1] if found else None
        if last is None or piece.row != last.row + last.rows or len(found[-1]) == STRETCH:
            found.append([])
        found[-1].append(piece)
    return found


class Trunk(Group):
    """bf16 rows and the same weights packed, in the tape's pieces; `size` bytes packed."""

    name, kernels = "trunk", ("bf16", "k12")

    @staticmethod
    def needs(config: Config, size: int) -> int:
        widest = max(t.shape[0] for t in trunk_matrices(config))
        packed = size * 11 // 10  # with padding and escapes
        return size * 4 // 3 + packed + size + 4 * max(TOKENS) * (widest + config.hidden_size)

    def build(self) -> None:
        self._pieces = self._cut()
        self._ld = max(t.shape[0] for t in trunk_matrices(self.config))
        self.contenders += [reading(self._bf16), peak()]
        stored = {"bf16": 2.0, "k12": 1.5}  # bytes per weight
        for tokens in TOKENS:
            for kind in (k for k in self.kernels if k in self.wanted):
                self.contenders.append(self._contender(kind, stored[kind], tokens))
        columns = self.config.hidden_size
        self.contenders.append(_bf16_doubles(self._bf16, columns))
        self.contenders += dense_rivals(self.memory, self.rivals, self._bf16, columns, self.size, TOKENS)

    def _cut(self) -> list[Piece]:
        places: list[tuple[int, int, int]] = []  # row, rows, columns
        left = self.size * 2 // 3  # weights
        for spec in over_and_over(trunk_matrices(self.config)):
            if left <= 0:
                break
            for row, rows in cut(*spec.shape, whole=False):
                places.append((row, rows, spec.shape[1]))
                left -= rows * spec.shape[1]
                if left <= 0:
                    break
        self._bf16 = self.memory.take(sum(2 * rows * columns for _, rows, columns in places))
        bf16_weights(self._bf16)
        counts = np.zeros(256, np.int64)
        _core.k12_histogram(counts, self._bf16)
        table = np.frombuffer(_core.k12_table(counts), np.uint8)
        views, at = [], 0
        for _, rows, columns in places:
            views.append(self._bf16[at : at + 2 * rows * columns])
            at += 2 * rows * columns
        sizes = [_core.k12_size(w, rows, columns, table) for w, (_, rows, columns) in zip(views, places, strict=True)]
        packed = self.memory.take(sum(padded(n, PIECE_ALIGNMENT) for n in sizes))
        pieces, at = [], 0
        for w, n, (row, rows, columns) in zip(views, sizes, places, strict=True):
            _core.k12_encode_into(packed[at : at + n], w, rows, columns, table)
            pieces.append(Piece(row, rows, columns, w, packed[at : at + n]))
            at += padded(n, PIECE_ALIGNMENT)
        return pieces

    def _contender(self, kind: str, stored: float, tokens: int) -> Contender:
        stretches = [Stretch.of(kind, pieces) for pieces in _stretches(self._pieces)]
        x = {columns: values((tokens, columns)) for columns in {s.columns for s in stretches}}
        y = np.empty((tokens, self._ld), np.float32)
        turns = Cycle(len(stretches), tokens)

        def run() -> Work:
            weights = 0
            for i in turns.take():
                s = stretches[i]
                _core.matmul(y, x[s.columns], s.data, s.row)
                weights += s.weights
            return Work(weights * tokens, 2.0 * weights, stored * weights)

        def digest() -> int:
            each = []
            for i in turns.first():
                s = stretches[i]
                _core.matmul(y, x[s.columns], s.data, s.row)
                each.append(checksum(y[:, s.row : s.row + s.rows]))
            return checksum(np.array(each, np.uint64))

        return Contender(kind, tokens, run, digest, outputs="rows")

    def close(self) -> None:
        super().close()
        self._pieces.clear()


def _bf16_doubles(bf16: U8, columns: int) -> Contender:
    rows = bf16.size // (2 * columns)
    w, x, y = bf16[: 2 * columns * rows], values((columns,)), np.empty(rows, np.float32)

    def run() -> Work:
        _bench.bf16_doubles(y, x, w)
        return Work(rows * columns, 2.0 * rows * columns)

    return Contender("doubles", 0, run, per_isa=False)
