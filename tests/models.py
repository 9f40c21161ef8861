"""Models for tests: any way of storing the weights, without going through Engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lilliput import _core
from lilliput.engine import scheduler
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.files import ShardFiles
from lilliput.weights.layout import Layout
from lilliput.weights.pieces import PieceSpec, in_place
from lilliput.weights.tape import Bytes, Piece, Tape, padded
from lilliput.weights.weights import Storage, Weights


def in_memory(specs: Sequence[PieceSpec], wanted: Layout) -> Storage:
    """Everything stays in memory once it was read."""
    experts = wanted.experts
    slots = len(experts.layers) * experts.num_experts if experts else 0
    return Storage(frozenset(range(len(specs))), 0, slots, window=1)


def from_disk(specs: Sequence[PieceSpec], wanted: Layout) -> Storage:
    """As little memory as there can be: nothing pinned, a ring for the largest piece, one expert at a time."""
    return Storage(frozenset(), max(padded(spec.nbytes, 4096) + 8192 for spec in specs), 0, window=1)


def half(specs: Sequence[PieceSpec], wanted: Layout) -> Storage:
    """Every other piece pinned, a roomy ring, a few experts kept."""
    return replace(from_disk(specs, wanted), pins=frozenset(range(0, len(specs), 2)), ring_bytes=8 << 20, expert_slots=5, window=3)


STORAGES = {"in memory": in_memory, "from disk": from_disk, "half": half}


class K12Tape(Tape):
    """Every piece packed to K12 as it comes by, however bad the packing: what a packed trunk gives the kernels."""

    def __init__(self, disk: Any, files: Any, specs: Sequence[PieceSpec], **options: Any) -> None:
        super().__init__(disk, files, specs, **options)
        self._shards = ShardFiles([path for path, _ in files], [size for _, size in files])
        self._tables: dict[str, bytes] = {}
        self._packed: dict[tuple[str, int], Bytes] = {}

    def _piece(self, spec: PieceSpec, data: Bytes) -> Piece:
        if (spec.name, spec.row) not in self._packed:
            packed = _core.k12_encode(data, spec.rows, spec.columns, self._table(spec))
            assert bytes(_core.k12_decode(packed, spec.rows, spec.columns)) == bytes(data)
            self._packed[spec.name, spec.row] = packed
        return Piece(spec.row, spec.rows, "k12", self._packed[spec.name, spec.row])

    def _table(self, spec: PieceSpec) -> np.ndarray:
        if spec.name not in self._tables:
            counts = np.zeros(256, np.int64)
            for other in self._specs:
                if other.name == spec.name:
                    _core.k12_histogram(counts, self._shards.read(other.file, other.offset, other.nbytes))
            self._tables[spec.name] = _core.k12_table(counts)
        return np.frombuffer(self._tables[spec.name], np.uint8)


def build_model(directory: Path, storage: str = "in memory", *, k12: bool = False, piece_bytes: int = 4 << 20, **options: Any) -> Model:
    """`options` replace fields of the storage, or go to Weights (`faults`, `reader_threads`), or give
    the pieces `checksums`."""
    config = read_config(directory)
    wanted = layout(config)
    checkpoint = Checkpoint.open(directory, wanted, cache=False)
    specs = in_place(checkpoint.tensors, wanted, piece_bytes)
    if options.pop("checksums", False):  # as if the shards were a packed tape
        files = ShardFiles(checkpoint.files, checkpoint.sizes)
        specs = [replace(s, checksum=_core.checksum(files.read(s.file, s.offset, s.nbytes))) for s in specs]
    reading = {name: options.pop(name) for name in ("faults", "reader_threads") if name in options}
    chosen = replace(STORAGES[storage](specs, wanted), **options)
    shards = list(zip(checkpoint.files, checkpoint.sizes, strict=True))
    make_tape = K12Tape if k12 else Tape
    weights = Weights(checkpoint, wanted, **reading)
    weights.allocate(chosen, specs, shards, make_tape=make_tape)
    return Model(config, weights)


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
