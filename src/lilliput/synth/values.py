"""Reproducible numbers: the same bytes from a seed on every machine, at several hundred MB/s.

Only integer operations and elementwise IEEE `+ - * /` and `sqrt` are used: no library generator (their streams may change between
versions) and no library logarithm (its last bit depends on the CPU). Every tensor has its own SplitMix64 stream, each 64-bit word
is four 16-bit numbers, and a distribution is a table of 65,536 values that they index.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEVELS = 65536  # values of a distribution; one 16-bit number picks one
BLOCK = 1 << 15  # words worked on at a time: 256 KB, so that the passes over them stay in the cache

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_STEPS = np.arange(1, BLOCK + 1, dtype=np.uint64) * np.uint64(_GAMMA)


def stream_key(seed: int, name: str) -> int:
    """Start of the stream of one tensor: 64 bits of a hash over seed and name."""
    return int.from_bytes(blake2b(f"lilliput synth 1 {seed} {name}".encode(), digest_size=8).digest(), "little")


def words(key: int, start: int, count: int) -> Array:
    """Words `start` .. `start + count - 1` (uint64, at most `BLOCK` of them) of the SplitMix64 stream that begins at `key`."""
    z = _STEPS[:count] + np.uint64((key + start * _GAMMA) & _MASK)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def raw_bytes(key: int, nbytes: int) -> Iterator[Array]:
    """`nbytes` uniform bytes, as uint8 arrays."""
    for start in range(0, (nbytes + 7) // 8, BLOCK):
        left = nbytes - 8 * start
        yield words(key, start, min(BLOCK, (left + 7) // 8)).astype("<u8", copy=False).view(np.uint8)[:left]


def picks(key: int, table: Array, count: int) -> Iterator[Array]:
    """`count` values drawn from `table` (`LEVELS` entries of any type), as arrays of its type."""
    for start in range(0, (count + 3) // 4, BLOCK):
        left = count - 4 * start
        numbers = words(key, start, min(BLOCK, (left + 3) // 4)).astype("<u8", copy=False).view("<u2")[:left]
        yield table.take(numbers)


def bf16(x: Array) -> Array:
    """float64 → bfloat16 bits (little-endian uint16): through float32, then round half to even. Finite values only."""
    bits = x.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


@lru_cache(maxsize=1)
def standard_normal() -> Array:
    """The `LEVELS` midpoints of the standard normal distribution, ascending, symmetric about 0 (float64)."""
    half = LEVELS // 2
    upper = _upper_quantile((half - np.arange(half, dtype=np.float64) - 0.5) / LEVELS)
    table = np.concatenate([-upper[::-1], upper])
    table.setflags(write=False)
    return table


def uniform(low: float, high: float) -> Array:
    """`LEVELS` midpoints between `low` and `high` (float64)."""
    return low + (high - low) * ((np.arange(LEVELS, dtype=np.float64) + 0.5) / LEVELS)


def integers(low: int, high: int) -> Array:
    """A table of the bytes `low` .. `high` (inclusive), each as often as any other to within one in `LEVELS`."""
    return (low + np.arange(LEVELS, dtype=np.int64) * (high - low + 1) // LEVELS).astype(np.uint8)


# Wichura's rational approximations of the normal quantile (AS 241, PPND16; relative error about 1e-16), lowest power first.
_CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
     6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip


def _upper_quantile(p: Array) -> Array:
    """x with P(X > x) = p, for p in [2^-17, 1/2)."""
    q = 0.5 - p
    central = q * _ratio(_CENTRE, 0.180625 - q * q)
    tail = _ratio(_TAIL, np.sqrt(-_log(p)) - 1.6)
    return np.where(q <= 0.425, central, tail)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above, below = (_polynomial(c, x) for c in coefficients)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _log(x: Array) -> Array:
    """Natural logarithm of positive float64 from elementwise arithmetic alone: 2 atanh((m - 1) / (m + 1)) + e log 2."""
    m, e = np.frexp(x)
    t = (m - 0.75) / (m + 0.75)  # m in [0.5, 1): |t| <= 0.2, so 12 terms reach 1e-17
    series = _polynomial(tuple(2.0 / (2 * k + 1) for k in range(12)), t * t)
    return t * series + (e * 0.6931471805599453 + -0.2876820724517809)
