"""What stands in which tensor: matrices that keep every activation near unit size, decays over the released range."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from lilliput.synth import values
from lilliput.synth.shards import Placed
from lilliput.synth.values import Array

SCALE_BYTES = (118, 122)  # E8M0 of the experts: 2^-9 .. 2^-5
NORM_SPREAD = 0.05  # deviation of the norm weights around 1
BIAS_SPREAD = 0.05  # of the router's selection bias: reorders some choices, decides none
LOG_DECAY = (-0.755, 2.468)  # A_log: exp of it spans the 0.47 .. 11.8 of the release
STEP_BIAS = (-4.0, 1.0)  # dt_bias: gates from almost no decay to the bound


def contents(tensor: Placed, seed: int) -> Iterator[Array]:
    """The bytes of a tensor in order, as arrays; exactly `tensor.nbytes` of them."""
    key = values.stream_key(seed, tensor.name)
    if tensor.name.endswith(".weight_packed"):
        return values.raw_bytes(key, tensor.nbytes)
    table = table_of(tensor)
    if (spec := tensor.source) is not None and spec.at_least:  # A_log: one value per head, then zeros as in the release
        return _padded(values.picks(key, table, spec.parameters), tensor.nbytes)
    return values.picks(key, table, tensor.nbytes // table.itemsize)


def table_of(tensor: Placed) -> Array:
    """The distribution of a tensor's values, in the tensor's own dtype."""
    name = tensor.name
    if tensor.dtype == "U8":
        return values.integers(*SCALE_BYTES)
    if name.endswith(".A_log"):
        return _even(*LOG_DECAY)
    if name.endswith(".dt_bias"):
        return _even(*STEP_BIAS)
    if name.endswith(".e_score_correction_bias"):
        return normal("F32", 0.0, BIAS_SPREAD)
    if len(tensor.shape) == 1:
        return normal(tensor.dtype, 1.0, NORM_SPREAD)
    return matrix_table(tensor.dtype, tensor.shape[-1])


def matrix_table(dtype: str, inputs: int) -> Array:
    """Normal with deviation 1/sqrt(inputs): a product with a vector of unit values has unit values again."""
    return normal(dtype, 0.0, 1.0 / float(np.sqrt(np.float64(inputs))))


@lru_cache(maxsize=32)
def normal(dtype: str, mean: float, deviation: float) -> Array:
    """Table of a normal distribution as float32 or as bfloat16 bits."""
    table = mean + deviation * values.standard_normal()
    return values.bf16(table) if dtype == "BF16" else table.astype("<f4")


@lru_cache(maxsize=4)
def _even(low: float, high: float) -> Array:
    return values.uniform(low, high).astype("<f4")


def _padded(arrays: Iterator[Array], nbytes: int) -> Iterator[Array]:
    for array in arrays:
        nbytes -= array.nbytes
        yield array
    if nbytes:
        yield np.zeros(nbytes, np.uint8)
