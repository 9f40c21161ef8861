"""How far two arrays of reference outputs are apart: `lilliput compare A.npy B.npy`.

Rows are positions: the last axis is what one position holds (logits, hidden values), all axes before it count positions; an array
of one axis is one row. B is the reference where it matters (the relative tolerance). Arrays in C order may be larger than memory;
one row has to fit.

What is not finite is stated, never averaged away: a NaN equals a NaN, an infinity equals itself; where only one side is NaN or
infinite, or the infinities differ in sign, the difference is infinite and no tolerance admits it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lilliput.errors import InputError, Problem, ToleranceError, UsageError

Array = NDArray[Any]
TOP = 10
CHUNK = 1 << 17  # elements looked at together: 1 MB as float64


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `compare_arrays`. `check` raises where `beyond` is not 0."""

    shape: tuple[int, ...]
    dtype: str
    rows: int
    columns: int
    atol: float
    rtol: float
    same_bits: bool  # stricter than `differing == 0`: tells -0 from 0, and NaNs of different payload apart
    differing: int  # values that are not equal
    beyond: int  # values with |A - B| > atol + rtol * |B|
    not_finite: tuple[int, int]  # NaNs and infinities in A, in B
    max_abs: float  # 0.0 for empty arrays, like `mean_abs`
    mean_abs: float
    correlation: float | None  # over pairs of finite values; None where undefined (a constant side)
    argmax_equal: int  # rows whose largest value has the same column; ties go to the lower column, a NaN counts as infinity
    top_overlap: float | None  # mean share of the `top` largest columns that both have; None without rows or columns
    top: int  # 10, or all columns where there are fewer
    first_differing_row: int | None  # counted over all axes but the last
    first_differing: tuple[int, ...] | None  # one index an axis, like `first_beyond`
    first_beyond: tuple[int, ...] | None
    first_beyond_values: tuple[float, float] | None  # A's and B's

    @property
    def within(self) -> bool:
        return self.beyond == 0

    def check(self) -> None:
        """Raise ToleranceError where any value is beyond the tolerance."""
        if self.first_beyond is None or self.first_beyond_values is None:
            return
        a, b = self.first_beyond_values
        allowed = f"by more than {self.atol:g} + {self.rtol:g} * |B|" if self.atol or self.rtol else "(none may)"
        raise ToleranceError(
            f"{self.beyond} of {self.rows * self.columns} values differ {allowed}: "
            f"at most by {self.max_abs:g}, first at {list(self.first_beyond)}: {a!r} against {b!r}"
        )


def compare_files(a: Path, b: Path, atol: float = 0.0, rtol: float = 0.0) -> Comparison:
    """`compare_arrays` of two .npy files. Raises InputError and UsageError as `load_npy` and it do."""
    return compare_arrays(load_npy(a), load_npy(b), atol, rtol, names=(str(a), str(b)))


def load_npy(path: Path) -> Array:
    """Map a .npy file of real numbers (bool, integers or floats of at most 8 bytes), read-only.

    Raises InputError where it is missing, is no .npy, holds objects or another dtype, or where its length is not exactly what its
    header says. Nothing is unpickled, nothing read beyond the header.
    """
    try:
        with Path(path).open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header written by Python 2 is as good
            # No header is longer than 10,000 bytes; a length that lies must not allocate anything.
            start = BytesIO(file.read(1 << 16))
            version = np.lib.format.read_magic(start)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(start)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(start)
            else:
                raise ValueError(f"format version {version[0]}.{version[1]}, not 1.0 or 2.0")
            offset = start.tell()
            size = file.seek(0, 2)
    except OSError as error:
        raise InputError([Problem(path, "", "a readable .npy file", error.strerror or str(error))]) from None
    except Exception as error:  # numpy lets through whatever its parsers of foreign text raise, a dozen kinds
        found = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError([Problem(path, "header", "a .npy file", found)]) from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        found = "pickled objects, which are never loaded" if dtype.hasobject else str(dtype)
        raise InputError([Problem(path, "dtype", "real numbers of at most 8 bytes", found)])
    if any(n < 0 for n in shape):
        raise InputError([Problem(path, "shape", "no negative dimension", str(shape))])
    needed = offset + math.prod(shape) * dtype.itemsize
    if size != needed:
        raise InputError([Problem(path, "length", f"{needed} bytes for {dtype} of shape {shape}", f"{size}")])
    order: Any = "F" if fortran else "C"
    if needed == offset:
        return np.zeros(shape, dtype, order)
    return np.memmap(path, dtype, "r", offset, shape, order)


def compare_arrays(a: Array, b: Array, atol: float = 0.0, rtol: float = 0.0, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare `a` with the reference `b`: same shape, same dtype (byte order aside).

    With both tolerances 0 any unequal value is beyond. Raises UsageError for arrays that cannot be compared, and for tolerances
    that are negative or not finite.
    """
    _refuse(a, b, atol, rtol, names)
    columns = a.shape[-1] if a.ndim else 1
    rows = a.size // columns if columns else math.prod(a.shape[:-1])
    values = _Values(atol, rtol)
    for x, y in _pairs(a.reshape(-1), b.reshape(-1), CHUNK):
        values.add(x, y)
    argmax_equal, overlap = _rankings(a.reshape(rows, columns), b.reshape(rows, columns))
    return Comparison(
        shape=a.shape,
        dtype=a.dtype.name,
        rows=rows,
        columns=columns,
        atol=atol,
        rtol=rtol,
        same_bits=values.same_bits,
        differing=values.differing,
        beyond=values.beyond,
        not_finite=(values.not_finite[0], values.not_finite[1]),
        max_abs=values.max_abs,
        mean_abs=values.sum / values.count if values.count else 0.0,
        correlation=values.correlation(),
        argmax_equal=argmax_equal,
        top_overlap=overlap,
        top=min(TOP, columns),
        first_differing_row=None if values.first_differing is None else values.first_differing // columns,
        first_differing=_index(values.first_differing, a.shape),
        first_beyond=_index(values.first_beyond, a.shape),
        first_beyond_values=values.first_values,
    )


def _refuse(a: Array, b: Array, atol: float, rtol: float, names: tuple[str, str]) -> None:
    complaints = []
    for option, value in (("--atol", atol), ("--rtol", rtol)):
        if not (math.isfinite(value) and value >= 0):
            complaints.append(f"{option}: needed a finite number of at least 0, found {value}")
    for name, array in zip(names, (a, b), strict=True):
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            complaints.append(f"{name}: needed real numbers of at most 8 bytes, found {array.dtype}")
    if a.shape != b.shape:
        complaints.append(f"needed arrays of the same shape, found {a.shape} in {names[0]} and {b.shape} in {names[1]}")
    if a.dtype.newbyteorder("=") != b.dtype.newbyteorder("="):
        complaints.append(f"needed arrays of the same dtype, found {a.dtype} in {names[0]} and {b.dtype} in {names[1]}")
    if complaints:
        raise UsageError("\n".join(complaints))


def _index(flat: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if flat is None else tuple(int(i) for i in np.unravel_index(flat, shape))


def _native(array: Array) -> Array:
    """In this machine's byte order, bool as bytes 0 and 1."""
    dtype = np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype)


def _pairs(a: Array, b: Array, step: int) -> Iterator[tuple[Array, Array]]:
    """The same stretch of both arrays, along the first axis, `step` at a time."""
    for start in range(0, len(a), step):
        yield _native(a[start : start + step]), _native(b[start : start + step])


class _Values:
    """What is known about all pairs of values so far."""

    def __init__(self, atol: float, rtol: float) -> None:
        self.atol, self.rtol = atol, rtol
        self.same_bits = True
        self.count = self.differing = self.beyond = 0
        self.not_finite = [0, 0]
        self.max_abs = 0.0
        self.sum = 0.0
        self.first_differing: int | None = None
        self.first_beyond: int | None = None
        self.first_values: tuple[float, float] | None = None
        # Number, means and centred second moments of the pairs of finite values.
        self.pairs = 0
        self.mean = np.zeros(2)
        self.moments = np.zeros((2, 2))

    def add(self, x: Array, y: Array) -> None:
        """Take in the next values, of one axis each."""
        bits = f"u{x.dtype.itemsize}"
        if not np.array_equal(x.view(bits), y.view(bits)):
            self.same_bits = False
        wide = np.stack((x, y)).astype(np.float64)
        finite = np.isfinite(wide)
        both = finite.all(0)
        unequal = (x != y) & ~(np.isnan(wide[0]) & np.isnan(wide[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            if x.dtype.kind == "f":
                difference = np.abs(wide[0] - wide[1])
            else:  # exact even where float64 is not: the result fits in 64 bits, and wrapping subtraction finds it
                difference = (np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)).astype(np.float64)
            difference[~both] = np.inf
            difference[~unequal] = 0.0
            allowed = self.atol + self.rtol * np.abs(wide[1])
            beyond = unequal & ~((difference <= allowed) & (difference < np.inf))
        if unequal.any() and self.first_differing is None:
            self.first_differing = self.count + int(unequal.argmax())
        if beyond.any() and self.first_beyond is None:
            at = int(beyond.argmax())
            self.first_beyond, self.first_values = self.count + at, (x[at].item(), y[at].item())
        self.count += len(x)
        self.differing += int(unequal.sum())
        self.beyond += int(beyond.sum())
        for side in (0, 1):
            self.not_finite[side] += len(x) - int(finite[side].sum())
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.sum += float(difference.sum())
        self._correlate(wide if both.all() else np.ascontiguousarray(wide[:, both]))

    def _correlate(self, wide: NDArray[np.float64]) -> None:
        """Merge the means and centred moments of more pairs; shape (2, n). Centred sums keep a small spread around a large mean."""
        n = wide.shape[1]
        if n == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = wide.mean(1)
            centred = wide - mean[:, None]
            step = mean - self.mean
            total = self.pairs + n
            self.moments += centred @ centred.T + np.outer(step, step) * (self.pairs * n / total)
            self.mean += step * (n / total)
            self.pairs = total

    def correlation(self) -> float | None:
        (xx, xy), (_, yy) = self.moments.tolist()
        if not (xx > 0 and yy > 0):
            return None
        value = xy / (math.sqrt(xx) * math.sqrt(yy))
        return min(1.0, max(-1.0, value)) if math.isfinite(value) else None


def _rankings(a: Array, b: Array) -> tuple[int, float | None]:
    """Rows (of two axes) whose largest value is in the same column; mean share of the top ten that they have in common."""
    rows, columns = a.shape
    if not a.size:
        return 0, None
    top = min(TOP, columns)
    equal = common = 0
    for x, y in _pairs(a, b, max(1, CHUNK // columns)):
        if x.dtype.kind == "f":
            x, y = (np.where(np.isnan(side), np.inf, side) for side in (x, y))
        equal += int((x.argmax(1) == y.argmax(1)).sum())
        common += int((_largest(x, top) & _largest(y, top)).sum())
    return equal, common / (rows * top)


def _largest(x: Array, top: int) -> NDArray[np.bool_]:
    """Mask of the `top` largest columns of each row; of equal values the lower columns."""
    least = np.partition(x, -top, axis=1)[:, -top][:, None]
    above, level = x > least, x == least
    room = top - above.sum(1, keepdims=True)
    mask: NDArray[np.bool_] = above | (level & (level.cumsum(1) <= room))
    return mask
