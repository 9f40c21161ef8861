"""A matrix product whose weights come by on the tape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lilliput import _core
from lilliput.model.ops import Array
from lilliput.weights.weights import Weights


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x Wᵀ for the matrix `name` [rows, columns], resident (a single row) or on the tape."""

    weights: Weights
    name: str
    rows: int

    def __call__(self, x: Array) -> Array:
        """x [N, columns] → [N, rows]."""
        y = np.empty((len(x), self.rows), np.float32)
        resident = self.weights.resident.get(self.name)
        if resident is not None:
            _core.matmul_f32(y, x, resident, 0)
        else:
            self.weights.tape.multiply(self.name, x, y)
        return y


@dataclass(frozen=True, slots=True)
class Mlp:
    """down(situ(gate x, up x)): the dense MLP and the shared experts."""

    gate: Linear
    up: Linear
    down: Linear
    beta: float
    linear_beta: float | None

    def __call__(self, x: Array) -> Array:
        gate, up = self.gate(x), self.up(x)
        _core.situ(gate, gate, up, self.beta, self.linear_beta)
        return self.down(gate)
