"""The core's kernels with their results allocated: the words the layers are written in. Arrays are float32, C-contiguous."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lilliput import _core

Array = npt.NDArray[np.float32]


def rms(x: Array, w: Array, eps: float) -> Array:
    """RMS norm of the rows of x [N, D] with weights w [D]."""
    x = np.ascontiguousarray(x)
    y = np.empty_like(x)
    _core.rms_norm(y, x, w, eps)
    return y


def sigmoid(x: Array) -> Array:
    y = np.empty_like(x)
    _core.sigmoid_(y, x)
    return y


def short_conv(u: Array, tail: Array, w: Array) -> Array:
    """silu(causal depthwise convolution): u [T, P], tail [P, k-1] the inputs before it, w [P, k]."""
    y = np.empty_like(u)
    _core.short_conv(y, u, tail, w)
    return y


def l2_heads(x: Array, heads: int, eps: float, scale: float | None) -> Array:
    """L2 norm of each head of x [T, heads · K], then times `scale`."""
    y = np.empty_like(x)
    _core.l2_heads(y, x, heads, eps, scale)
    return y


def mix(entries: Sequence[Array], w: Array, eps: float) -> Array:
    """Softmax-weighted sum over depth of entries [N, D]; w [D] = norm weight · projection."""
    y = np.empty_like(entries[0])
    _core.mix(y, list(entries), w, eps)
    return y
