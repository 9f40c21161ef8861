"""Routed experts: requested once the router has decided, applied in ascending expert id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lilliput import _core
from lilliput.errors import LilliputError
from lilliput.weights.checkpoint import ExpertTable
from lilliput.weights.files import Bytes, ShardFiles
from lilliput.weights.layout import ExpertSpec

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

Parts = tuple[Bytes, ...]  # the six tensors of one expert, in the order of ExpertSpec.PARTS


class Experts:
    """Reads experts in place from the shards; `resident` keeps each after its first reading.

    `nan_scales` counts MXFP4 groups whose scale byte is 255 in the experts used so far.
    """

    def __init__(self, shards: ShardFiles, table: ExpertTable, spec: ExpertSpec, *, resident: bool) -> None:
        self._shards, self._table, self.spec, self._resident = shards, table, spec, resident
        self._rows = {layer: row for row, layer in enumerate(spec.layers)}
        self._kept: dict[tuple[int, int], Parts] = {}
        self._buffer: Bytes = np.empty(spec.nbytes, np.uint8)
        self.nan_scales = 0

    def request(self, layer: int, ids: Ids) -> Chosen:
        """Announce the experts `ids` [N, k] (ascending per token) of a layer; each is read once however many tokens chose it."""
        return Chosen(self, layer, ids)

    def load(self, layer: int, expert: int) -> Parts:
        """The six tensors of one expert; valid until the next call unless experts are resident."""
        kept = self._kept.get((layer, expert))
        if kept is not None:
            return kept
        row = self._rows[layer]
        buffer = np.empty_like(self._buffer) if self._resident else self._buffer
        parts, at = [], 0
        for part, nbytes in enumerate(self.spec.part_bytes):
            view = buffer[at : at + nbytes]
            self._shards.read_into(int(self._table.file[row, expert, part]), int(self._table.offset[row, expert, part]), view)
            parts.append(view)
            at += nbytes
        loaded = tuple(parts)
        if self._resident:
            self._kept[layer, expert] = loaded
        return loaded


class Chosen:
    """The experts that one layer's tokens chose."""

    def __init__(self, experts: Experts, layer: int, ids: Ids) -> None:
        self._experts, self._layer, self._ids = experts, layer, ids

    def apply(self, weights: Array, x: Array, beta: float, linear_beta: float | None) -> Array:
        """sum_e weight_e · w2_e situ(w1_e x, w3_e x) per token, ascending expert id: x [N, latent] → [N, latent]; weights [N, k]."""
        y = np.zeros_like(x)
        experts, spec = self._experts, self._experts.spec
        for expert in np.unique(self._ids):
            tokens, places = np.nonzero(self._ids == expert)
            parts = experts.load(self._layer, int(expert))
            chosen = np.ascontiguousarray(weights[tokens, places])
            experts.nan_scales += _core.expert(y, x, tokens.astype(np.int32), chosen, parts, spec.width, spec.latent, beta, linear_beta)
        _core.finish(y)
        return y


class NoExperts(Experts):
    """For a model whose layers are all dense."""

    def __init__(self) -> None:
        self.nan_scales = 0

    def request(self, layer: int, ids: Ids) -> Chosen:
        raise LilliputError(f"layer {layer} has no experts")
