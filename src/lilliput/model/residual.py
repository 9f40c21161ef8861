"""Attention residuals: every block of layers sums on its own, and each layer reads a learned mixture of the sums so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lilliput import _core
from lilliput.model.ops import Array, mix


@dataclass(frozen=True, slots=True)
class Mixer:
    """How one reader weighs the block sums: w [D] = norm weight · projection. None: the stream is read as it is."""

    w: Array | None
    eps: float


class Stream:
    """The running sum s [N, D] and the frozen block sums of one pass. With block_size None an ordinary residual stream."""

    def __init__(self, embedded: Array, block_size: int | None) -> None:
        self._blocks: list[Array] = []
        self._sum: Array | None = embedded
        self._block_size = block_size

    @property
    def sum(self) -> Array:
        assert self._sum is not None
        return self._sum

    def read(self, mixer: Mixer) -> Array:
        """What a layer sees. The mixture feeds the norms only; it never enters the sum."""
        if not self._blocks or mixer.w is None:
            return self.sum
        return mix([*self._blocks, self.sum], mixer.w, mixer.eps)

    def boundary(self, layer: int) -> None:
        """At every block_size-th layer, after its attention has read: freeze the sum (itself, not the mixture), start afresh."""
        if self._block_size is not None and layer % self._block_size == 0:
            self._blocks.append(self.sum)
            self._sum = None

    def add(self, y: Array) -> None:
        """Add a layer's output, which is ours from here on; the first after a boundary is the new sum."""
        if self._sum is not None:
            _core.add(y, self._sum)  # in the core, because numpy adds in whatever floating-point mode the caller's thread is in
        self._sum = y

    def only(self, rows: list[int]) -> None:
        """Forget all tokens but these."""
        self._blocks = [np.ascontiguousarray(block[rows]) for block in self._blocks]
        self._sum = np.ascontiguousarray(self.sum[rows])
