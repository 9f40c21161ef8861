"""Models for tests: any residency, any storage, without going through Engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lilliput import _core
from lilliput.engine import scheduler
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.files import ShardFiles
from lilliput.weights.tape import Piece, Tape, TapeEntry
from lilliput.weights.weights import Weights


class K12Tape(Tape):
    """Every piece packed to K12 in memory, however bad the packing: what a packed trunk gives the kernels."""

    def __init__(self, shards: ShardFiles, entries: Sequence[TapeEntry]) -> None:
        super().__init__(shards, entries, resident=True)
        self._tables: dict[str, bytes] = {}
        self._packed: dict[tuple[str, int], Piece] = {}

    def _piece(self, entry: TapeEntry, row: int, rows: int) -> Piece:
        if (entry.name, row) not in self._packed:
            raw = super()._piece(entry, row, rows).data
            data = _core.k12_encode(raw, rows, entry.shape[1], self._table(entry))
            assert bytes(_core.k12_decode(data, rows, entry.shape[1])) == bytes(raw)
            self._packed[entry.name, row] = Piece(row, rows, "k12", data)
        return self._packed[entry.name, row]

    def _table(self, entry: TapeEntry) -> bytes:
        if entry.name not in self._tables:
            counts = np.zeros(256, np.int64)
            for row, rows in entry.extents():
                _core.k12_histogram(counts, super()._piece(entry, row, rows).data)
            self._tables[entry.name] = _core.k12_table(counts)
        return self._tables[entry.name]


def build_model(directory: Path, *, resident: bool = True, k12: bool = False) -> Model:
    config = read_config(directory)
    wanted = layout(config)
    checkpoint = Checkpoint.open(directory, wanted, cache=False)
    return Model(config, Weights(checkpoint, wanted, resident=resident, tape=K12Tape if k12 else None))


def all_logits(model: Model, ids: Sequence[int], chunk: int = scheduler.CHUNK, state: State | None = None) -> np.ndarray:
    """Logits at every position of ids: [len(ids), V]."""
    work = scheduler.Work(state or State(model.config), ids, range(len(ids)))
    return np.concatenate([parts[0].span.logits for parts in scheduler.run(model, [work], chunk)])


def greedy(model: Model, prompt: Sequence[int], n: int) -> list[int]:
    state, new = State(model.config), []
    pending = list(prompt)
    for _ in range(n):
        new.append(int(np.argmax(all_logits(model, pending, state=state)[-1])))
        pending = [new[-1]]
    return new
