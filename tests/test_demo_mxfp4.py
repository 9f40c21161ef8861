"""The quantiser of `tools/make_demo.py`: codes and scales read back by the reference, errors against every possible choice."""

from __future__ import annotations

import numpy as np
import pytest
from demo_training.mxfp4 import quantised
from reference import E2M1, mxfp4


def test_representable_values_come_back_exactly() -> None:
    rng = np.random.default_rng(1)
    w = E2M1[rng.integers(0, 16, (64, 96))] * np.exp2(rng.integers(-12, 3, (64, 3))).repeat(32, axis=1)
    assert np.array_equal(mxfp4(*quantised(w.astype(np.float32))), w)


@pytest.mark.parametrize("spread", [1e-4, 0.07, 3.0])
def test_no_scale_and_no_codes_are_better(spread: float) -> None:
    w = (spread * np.random.default_rng(2).standard_t(4, (40, 32))).astype(np.float32)
    found = np.square(mxfp4(*quantised(w)) - w).sum(1)
    choices = E2M1[:8] * np.exp2(np.arange(-30.0, 10))[:, None]  # [scale, level]
    nearest = np.abs(np.abs(w)[:, :, None, None] - choices).min(-1)  # [row, weight, scale]
    best = np.square(nearest).sum(1).min(1)
    assert np.allclose(found, best, rtol=1e-6)


def test_halfway_values_go_to_even_codes() -> None:
    halfway = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0], np.float32)
    w = np.tile(np.concatenate([halfway, -halfway]), (1, 2))
    expected = np.array([0, 1, 1, 2, 2, 4, 4, 6])
    assert np.array_equal(mxfp4(*quantised(w))[0, :16], np.concatenate([expected, -expected]))


def test_zeros_stay_zero() -> None:
    packed, scale = quantised(np.zeros((2, 64), np.float32))
    assert not mxfp4(packed, scale).any()
    assert (scale < 255).all()
