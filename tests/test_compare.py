"""Comparing arrays: hand-worked cases, exact rational sums, and files that lie."""

from __future__ import annotations

import contextlib
import math
import pickle
import struct
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lilliput import compare
from lilliput.compare import compare_arrays, compare_files, load_npy
from lilliput.errors import InputError, ToleranceError, UsageError

INF, NAN = math.inf, math.nan


def f32(*rows: Any) -> np.ndarray:
    return np.array(rows, np.float32)


# ---- numbers


def test_by_hand() -> None:
    a = f32([1, 2, 3, 4], [5, 6, 7, 8], [0, 9, 0, 0])
    b = f32([1, 2, 3, 4], [5, 6.5, 7, 8], [9, 7, 0, 0])
    result = compare_arrays(a, b)
    assert (result.shape, result.dtype, result.rows, result.columns) == ((3, 4), "float32", 3, 4)
    assert (result.same_bits, result.differing, result.beyond, result.not_finite) == (False, 3, 3, (0, 0))
    assert result.max_abs == 9
    assert result.mean_abs == 11.5 / 12
    assert result.correlation == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1], abs=1e-14)
    assert result.argmax_equal == 2
    assert (result.top, result.top_overlap) == (4, 1.0)
    assert result.first_differing_row == 1
    assert (result.first_differing, result.first_beyond, result.first_beyond_values) == ((1, 1), (1, 1), (6.0, 6.5))
    assert not result.within
    with pytest.raises(ToleranceError) as caught:
        result.check()
    assert str(caught.value) == "3 of 12 values differ (none may): at most by 9, first at [1, 1]: 6.0 against 6.5"
    assert caught.value.exit_code == 1


def test_equal_arrays() -> None:
    a = f32([1, -2], [3, 5])
    result = compare_arrays(a, a.copy())
    assert result.same_bits
    assert (result.differing, result.max_abs, result.mean_abs, result.correlation) == (0, 0.0, 0.0, pytest.approx(1))
    assert (result.first_differing_row, result.first_differing, result.first_beyond) == (None, None, None)
    result.check()


@pytest.mark.parametrize(
    ("atol", "rtol", "beyond"),
    [
        (0, 0, 2),
        (0.5, 0, 1),
        (0.49, 0, 2),
        (8, 0, 0),
        (7.9, 0, 1),
        (0, 0.5, 1),
        (0, 0.25, 1),
        (0.25, 0.125, 1),
        (7.5, 0.25, 0),
        (7.5, 0.2, 1),
    ],
)
def test_tolerance(atol: float, rtol: float, beyond: int) -> None:
    # |2.5 - 2| and |10 - 2|, both against B = 2.
    result = compare_arrays(f32(2.5, 10, 3), f32(2, 2, 3), atol, rtol)
    assert (result.differing, result.beyond) == (2, beyond)
    if beyond:
        with pytest.raises(ToleranceError, match=f"^{beyond} of 3 values differ "):
            result.check()
    else:
        result.check()


def test_relative_to_the_second() -> None:
    assert compare_arrays(f32(10), f32(20), rtol=0.5).within
    assert not compare_arrays(f32(20), f32(10), rtol=0.5).within


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (NAN, 1, False),
        (1, NAN, False),
        (INF, 1, False),
        (1, -INF, False),
        (INF, -INF, False),
        (NAN, INF, False),
    ],
)
def test_not_finite(a: float, b: float, same: bool) -> None:
    result = compare_arrays(f32(1, a, 2), f32(1, b, 2), atol=1e30, rtol=1e30)
    assert result.within == same
    assert result.differing == (not same)
    assert result.max_abs == (0 if same else INF)
    assert result.mean_abs == (0 if same else INF)
    assert result.not_finite == (not math.isfinite(a), not math.isfinite(b))
    assert result.correlation == pytest.approx(1)  # of the finite pairs


def test_bits_are_stricter_than_values() -> None:
    assert compare_arrays(f32(0.0), f32(-0.0)).within
    assert not compare_arrays(f32(0.0), f32(-0.0)).same_bits
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert compare_arrays(f32(NAN), other).within
    assert not compare_arrays(f32(NAN), other).same_bits
    assert compare_arrays(f32(NAN), f32(NAN)).same_bits


def test_smallest_difference_is_seen() -> None:
    tiny = np.array([5e-324, 0.0])
    result = compare_arrays(tiny, np.zeros(2))
    assert (result.differing, result.beyond, result.max_abs) == (1, 1, 5e-324)
    assert compare_arrays(np.array([1e308, 1.0]), np.array([-1e308, 1.0])).max_abs == INF


@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint8", "int8", "bool", "float16"])
def test_extremes_of_other_dtypes(dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        a, b = np.array([high, high, 1], kind), np.array([low, high - 1, 1], kind)
        assert compare_arrays(a, b).max_abs == float(int(high) - int(low))
        assert compare_arrays(b, a).mean_abs == pytest.approx((int(high) - int(low) + 1) / 3)
    else:
        a, b = np.array([1, 1, 1], kind), np.array([0, 0, 1], kind)
        assert compare_arrays(a, b).mean_abs == pytest.approx(2 / 3)
    assert (compare_arrays(a, b).differing, compare_arrays(a, b).beyond) == (2, 2)


def exact_correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    x, y = [Fraction(float(v)) for v in a.ravel()], [Fraction(float(v)) for v in b.ravel()]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    xx, yy = sum((v - mx) ** 2 for v in x), sum((v - my) ** 2 for v in y)
    xy = sum((v - mx) * (w - my) for v, w in zip(x, y, strict=True))
    return None if not (xx and yy) else math.copysign(math.sqrt(xy**2 / (xx * yy)), xy)


GRID = hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 30)), elements=st.integers(-40, 40).map(lambda v: v / 8))


@settings(max_examples=150)
@given(a=GRID, data=st.data(), chunk=st.sampled_from([1, 7, 1000]))
def test_against_exact_sums(a: np.ndarray, data: st.DataObject, chunk: int) -> None:
    b = data.draw(st.just(a.copy()) | hnp.arrays(np.float32, a.shape, elements=st.integers(-40, 40).map(lambda v: v / 8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "CHUNK", chunk)
        result = compare_arrays(a, b, atol=0.25, rtol=0.125)
    pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    far = [abs(x - y) > Fraction(1, 4) + abs(y) / 8 for x, y in pairs]
    assert result.max_abs == float(max(abs(x - y) for x, y in pairs))
    assert result.mean_abs == float(sum(abs(x - y) for x, y in pairs) / len(pairs))
    assert result.beyond == sum(far)
    assert result.differing == sum(x != y for x, y in pairs)
    columns = a.shape[1]
    assert result.first_beyond == (divmod(far.index(True), columns) if True in far else None)
    rows = [i for i in range(len(a)) if a[i].tolist() != b[i].tolist()]
    assert result.first_differing_row == (rows[0] if rows else None)
    expected = exact_correlation(a, b)
    assert result.correlation == (None if expected is None else pytest.approx(expected, abs=1e-12))

    def ranking(row: np.ndarray) -> list[int]:
        return sorted(range(columns), key=lambda i: (-row[i], i))

    assert result.argmax_equal == sum(ranking(x)[0] == ranking(y)[0] for x, y in zip(a, b, strict=True))
    common = sum(len({*ranking(x)[:10]} & {*ranking(y)[:10]}) for x, y in zip(a, b, strict=True))
    assert result.top_overlap == pytest.approx(common / (len(a) * min(10, columns)))


def test_small_spread_around_a_large_mean() -> None:
    rng = np.random.default_rng(3)
    spread = rng.integers(-8, 8, 5_000) / 8.0
    a, b = 1e8 + spread, 1e8 + spread[::-1]
    assert compare_arrays(a, b).correlation == pytest.approx(np.corrcoef(spread, spread[::-1])[0, 1], abs=1e-9)


def test_correlation_where_there_is_none() -> None:
    assert compare_arrays(f32(1, 1), f32(1, 2)).correlation is None
    assert compare_arrays(f32(3), f32(3)).correlation is None
    assert compare_arrays(f32(NAN, NAN), f32(1, 2)).correlation is None
    assert compare_arrays(f32(1, 2), f32(2, 1)).correlation == pytest.approx(-1)


def test_rankings() -> None:
    a = np.zeros((1, 30), np.float32)
    b = a.copy()
    b[0, 9] = -1  # drops out of the ten that win ties by the lower column
    result = compare_arrays(a, b)
    assert (result.argmax_equal, result.top, result.top_overlap) == (1, 10, 0.9)
    b = a.copy()
    b[0, 20] = NAN  # counts as infinity
    assert compare_arrays(a, b).argmax_equal == 0
    a[0, 20] = INF
    assert compare_arrays(a, b).argmax_equal == 1
    assert compare_arrays(f32(INF, NAN), f32(INF, 0)).argmax_equal == 1
    a[0, 5:] = b[0, 5:] = NAN
    assert compare_arrays(a, b).top_overlap == 1


# ---- shapes


def test_axes() -> None:
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    b = a.copy()
    b[1, 2, 0] += 1
    result = compare_arrays(a, b)
    assert (result.rows, result.columns, result.first_differing_row, result.first_differing) == (6, 4, 5, (1, 2, 0))
    assert compare_arrays(a, np.asfortranarray(b)).first_differing == (1, 2, 0)
    one = compare_arrays(a.ravel(), b.ravel())
    assert (one.rows, one.columns, one.first_differing_row, one.first_differing) == (1, 24, 0, (20,))
    none = compare_arrays(np.float32(3).reshape(()), np.float32(4).reshape(()))
    assert (none.rows, none.columns, none.first_differing, none.max_abs) == (1, 1, (), 1)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty(shape: tuple[int, ...]) -> None:
    result = compare_arrays(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    assert result.within
    assert result.same_bits
    assert (result.max_abs, result.mean_abs, result.correlation, result.argmax_equal, result.top_overlap) == (0, 0, None, 0, None)
    assert result.rows * result.columns == 0


def test_byte_order_does_not_matter() -> None:
    a = f32(1, 2, 3)
    assert compare_arrays(a, a.astype(">f4")).same_bits
    assert compare_arrays(a.astype(">f4"), f32(1, 2, 4)).max_abs == 1


def test_complaints_together() -> None:
    with pytest.raises(UsageError) as caught:
        compare_arrays(np.zeros((2, 3), np.float32), np.zeros(6, np.complex64), -1, NAN, names=("x.npy", "y.npy"))
    assert str(caught.value).splitlines() == [
        "--atol: needed a finite number of at least 0, found -1",
        "--rtol: needed a finite number of at least 0, found nan",
        "y.npy: needed real numbers of at most 8 bytes, found complex64",
        "needed arrays of the same shape, found (2, 3) in x.npy and (6,) in y.npy",
        "needed arrays of the same dtype, found float32 in x.npy and complex64 in y.npy",
    ]
    with pytest.raises(UsageError, match="--atol"):
        compare_arrays(f32(1), f32(1), atol=INF)


# ---- files


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "<i8", "|u1", "|b1"])
def test_files_as_numpy_writes_them(shape: tuple[int, ...], order: Any, dtype: str, tmp_path: Path) -> None:
    array = np.asarray(np.arange(math.prod(shape)).reshape(shape).astype(dtype), order=order)
    np.save(tmp_path / "ä b.npy", array)
    loaded = load_npy(tmp_path / "ä b.npy")
    assert loaded.dtype == array.dtype
    assert loaded.shape == shape
    assert loaded.tobytes() == array.tobytes()
    assert not loaded.flags.writeable or array.size == 0
    assert compare_files(tmp_path / "ä b.npy", tmp_path / "ä b.npy").same_bits


def test_other_header_version(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, f32(1, 2), version=(2, 0))
    assert load_npy(tmp_path / "a.npy").tolist() == [1, 2]


def npy(header: str, body: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    raw = header.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(raw) if length is None else length)
    return b"\x93NUMPY" + bytes((version, 0)) + size + raw + body


F4 = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", ": header: needed a .npy file, found EOF: reading magic string"),
        (b"PK\x03\x04" + b"\0" * 50, ": header: needed a .npy file, found the magic string is not correct"),
        (b"\x93NUMPY\x01\x00\xff", ": header: needed a .npy file, found EOF"),
        (b"\x93NUMPY\x09\x00\x01\x00{}", ": header: needed a .npy file, found "),
        (b"\x93NUMPY\x03\x00\x01\x00\x00\x00\n", ": header: needed a .npy file, found format version 3.0, not 1.0 or 2.0"),
        (npy("{", b""), ": header: needed a .npy file, found "),
        (npy("[" * 9_000), ": header: needed a .npy file, found "),
        (npy("{'descr': '<f4'}"), ": header: needed a .npy file, found "),
        (npy(F4 % "'x'"), ": header: needed a .npy file, found "),
        (npy(F4.replace("<f4", "nonsense") % "(1,)"), ": header: needed a .npy file, found "),
        (npy(F4 % "(1,)", b"\0" * 4, version=2, length=4_000_000_000), ": header: needed a .npy file, found EOF"),
        (npy(F4 % "(-1, -1)", b"\0" * 4), ": shape: needed no negative dimension, found (-1, -1)"),
        (npy(F4 % "(3,)", b"\0" * 11), " bytes for float32 of shape (3,), found "),
        (npy(F4 % "(3,)", b"\0" * 13), " bytes for float32 of shape (3,), found "),
        (npy(F4 % "(0,)", b"\0"), " bytes for float32 of shape (0,), found "),
        (npy(F4 % "(4294967296, 4294967296)"), ": length: needed 73786976294838206550 bytes for float32"),
        (npy(F4.replace("<f4", "<c8") % "(1,)", b"\0" * 8), ": dtype: needed real numbers of at most 8 bytes, found complex64"),
        (npy(F4.replace("<f4", "<U1") % "(1,)", b"\0" * 4), ": dtype: needed real numbers of at most 8 bytes, found <U1"),
        (
            npy(F4.replace("<f4", "|O") % "(1,)", pickle.dumps(Bomb())),
            ": dtype: needed real numbers of at most 8 bytes, found pickled objects",
        ),
        (npy(F4.replace("'<f4'", "[('a', '|O')]") % "(1,)", pickle.dumps(Bomb())), "found pickled objects, which are never loaded"),
    ],
)
def test_malformed_files(raw: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.npy"
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        load_npy(path)
    assert str(path) in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.npy: needed a readable \.npy file, found No such file"):
        load_npy(tmp_path / "no.npy")
    with pytest.raises(InputError, match="found Is a directory"):
        load_npy(tmp_path)


@settings(max_examples=300)
@given(data=st.data())
def test_fuzzed_headers(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    raw = bytearray(npy(F4 % "(2, 3)", b"\0" * 24))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        assume(raw)
    path = tmp_path_factory.getbasetemp() / "fuzzed.npy"
    path.write_bytes(raw)
    with contextlib.suppress(InputError):
        load_npy(path)


def test_names_of_files_in_complaints(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", f32(1, 2))
    np.save(tmp_path / "b.npy", f32(1))
    with pytest.raises(UsageError) as caught:
        compare_files(tmp_path / "a.npy", tmp_path / "b.npy")
    assert str(caught.value) == f"needed arrays of the same shape, found (2,) in {tmp_path / 'a.npy'} and (1,) in {tmp_path / 'b.npy'}"


def test_large_files_stay_on_disk(tmp_path: Path) -> None:
    """Two sparse files of 100 MB are compared while little is allocated (tracemalloc counts numpy's arrays, not mapped files)."""
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path in paths:
        np.lib.format.open_memmap(path, "w+", np.float32, (250, 100_000)).flush()
    with paths[1].open("r+b") as file:
        file.seek(-4, 2)
        file.write(struct.pack("<f", 2.5))
    tracemalloc.start()
    try:
        result = compare_files(*paths)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.first_differing, result.max_abs, result.differing, result.argmax_equal) == ((249, 99_999), 2.5, 1, 249)
    assert peak < 30_000_000
