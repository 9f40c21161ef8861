"""Float32 matrices to MXFP4 (`kimi-k3.md` section 10), each group of 32 with the scale that suits it best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP = 32
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)  # E2M1 without the sign
MIDDLES = (LEVELS[1:] + LEVELS[:-1]) / 2
BIAS = 127  # of an E8M0 scale byte


def quantised(w: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """[rows, columns] → packed codes [rows, columns / 2] and scale bytes [rows, columns / 32].

    Of the two powers of two next to (largest / 6) each group takes the one with the smaller squared error; the smaller cuts off what
    is beyond 6. Halfway values go to the code whose last bit is 0.
    """
    groups = w.reshape(len(w), -1, GROUP)
    largest = np.abs(groups).max(-1)
    ceiling = np.ceil(np.log2(np.maximum(largest, 2.0**-100) / 6)).astype(np.int64)
    tried = [_coded(groups, ceiling - lower) for lower in (0, 1)]
    better = (tried[1][1] < tried[0][1])[..., None]
    codes = np.where(better, tried[1][0], tried[0][0]).reshape(w.shape)
    exponent = ceiling - better[..., 0]
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), (exponent + BIAS).astype(np.uint8)


def _coded(groups: NDArray[np.float32], exponent: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Codes under a given scale, and the squared error of each group."""
    scaled = np.abs(groups) * np.exp2(-exponent.astype(np.float64))[..., None]
    code = np.searchsorted(MIDDLES, scaled, side="left")  # a halfway value: to the lower level ...
    halfway = (code < len(MIDDLES)) & (scaled == np.append(MIDDLES, np.inf)[code])
    code = code + (halfway & (code % 2 == 1))  # ... unless that is the odd one
    error = (np.square(scaled - LEVELS[code])).sum(-1) * np.exp2(2.0 * exponent)
    return (code | np.signbit(groups) * 8).astype(np.uint8), error
