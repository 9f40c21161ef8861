"""Dot products and transposed products: the contract's bits, on every instruction set, at every shape, thread count and alignment."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import pairwise

import contract_dot as plain
import numpy as np
import pytest
from contract import F, Floats, everywhere, same_bits
from control_register import MODES, under_mode
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput import _core

SHAPES = [
    (1, 1, 1),
    (2, 2, 3),
    (3, 31, 2),
    (4, 32, 1),
    (4, 33, 6),
    (5, 127, 4),
    (8, 128, 5),
    (6, 129, 7),
    (7, 255, 13),
    (9, 640, 1),
    (13, 300, 50),
    (130, 600, 61),
]


def numbers(rng: np.random.Generator, *shape: int) -> Floats:
    """Normal values with outliers, zeros of both signs and subnormals among them."""
    x = rng.normal(size=shape).astype(F)
    kind = rng.integers(0, 40, size=shape)
    x[kind == 0] *= F(100)
    x[kind == 1] = F(0.0)
    x[kind == 2] = F(-0.0)
    x[kind == 3] *= F(2.0**-127)
    return x


def pack(w: bytes | np.ndarray, rows: int, columns: int, table: bytes | None = None) -> np.ndarray:
    raw = np.frombuffer(bytes(w), np.uint8)
    if table is None:
        counts = np.zeros(256, np.int64)
        _core.k12_histogram(counts, raw)
        table = _core.k12_table(counts)
    return _core.k12_encode(raw, rows, columns, np.frombuffer(table, np.uint8))


def at_offset(data: np.ndarray, offset: int) -> np.ndarray:
    """The same bytes, `offset` bytes into a larger buffer."""
    raw = np.frombuffer(data.tobytes(), np.uint8)
    room = np.full(raw.size + 64 + offset, 0xFF, np.uint8)
    start = -room.ctypes.data % 64 + offset
    room[start : start + raw.size] = raw
    return room[start : start + raw.size]


def products(w: Floats, x: Floats, offset: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """bf16, K12 with a good table, K12 with one that makes nearly every weight an escape."""
    rows, columns = w.shape
    out = [np.full((len(x), rows + 3), F(7)) for _ in range(3)]
    raw = plain.bf16(w)
    _core.matmul_bf16(out[0], x, at_offset(raw, offset), rows, 2)
    _core.matmul_k12(out[1], x, at_offset(pack(raw, rows, columns), offset), rows, 2)
    _core.matmul_k12(out[2], x, at_offset(pack(raw, rows, columns, bytes(range(200, 216))), offset), rows, 2)
    return out[0], out[1], out[2]


@pytest.mark.parametrize(("rows", "columns", "tokens"), SHAPES)
def test_stored_rows_follow_the_contract(rows: int, columns: int, tokens: int) -> None:
    rng = np.random.default_rng(rows * columns + tokens)
    w, x = numbers(rng, rows, columns), numbers(rng, tokens, columns)
    expected = plain.dot(plain.from_bf16(plain.bf16(w), rows, columns), x)
    for got in everywhere(lambda: products(w, x)):
        same_bits(got[:, 2:-1], expected)
        assert (got[:, [0, 1, -1]] == 7).all()  # only the rows asked for are written


@pytest.mark.parametrize(("rows", "columns", "tokens"), SHAPES)
def test_float32_rows_follow_the_contract(rows: int, columns: int, tokens: int) -> None:
    rng = np.random.default_rng(rows + columns + tokens)
    w, x = numbers(rng, rows, columns), numbers(rng, tokens, columns)

    def run() -> Floats:
        y = np.full((tokens, rows + 1), F(7))
        _core.matmul_f32(y, x, w, 1)
        return y

    (got,) = everywhere(run)
    same_bits(got[:, 1:], plain.dot(w, x))
    assert (got[:, 0] == 7).all()


def test_the_order_in_rational_numbers() -> None:
    """The emulation above shares its fma with nobody's kernel; this one shares none of its arithmetic either."""
    rng = np.random.default_rng(5)
    for columns in (1, 30, 70, 150):
        w, x = numbers(rng, 2, columns), numbers(rng, 1, columns)
        y = np.empty((1, 2), F)
        _core.matmul_f32(y, x, w, 0)
        same_bits(y[0], np.array([plain.dot_rational(row, x[0]) for row in w], F))


@pytest.mark.parametrize("columns", [64, 1000, 7168])
def test_close_to_float64(columns: int) -> None:
    rng = np.random.default_rng(columns)
    w, x = numbers(rng, 8, columns), numbers(rng, 3, columns)
    exact_w = plain.from_bf16(plain.bf16(w), 8, columns).astype(np.float64)
    exact, size = x @ exact_w.T.astype(np.float64), np.abs(x).astype(np.float64) @ np.abs(exact_w.T)
    steps = columns / 16 + 5  # roundings that one element can go through
    for got in products(w, x):
        assert (np.abs(got[:, 2:-1] - exact) <= steps * 2.0**-24 * size).all()


@pytest.mark.parametrize("offset", [1, 2, 3, 6, 17])
def test_weights_at_any_alignment(offset: int) -> None:
    rng = np.random.default_rng(3)
    w, x = numbers(rng, 6, 300), numbers(rng, 4, 300)
    first = products(w, x)
    for got in everywhere(lambda: products(w, x, offset)):
        same_bits(got, first[0])


@pytest.mark.parametrize("tokens", [1, 5, 53])
@pytest.mark.parametrize("cuts", [[0, 4, 8, 70], [0, 1, 2, 7, 70], [0, 70]])
def test_pieces_that_follow_each_other_are_one_matrix(tokens: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(tokens)
    columns = 200
    w, x = numbers(rng, 70, columns), numbers(rng, tokens, columns)
    raw = plain.bf16(w)
    rows = np.diff(cuts).tolist()
    pieces = [raw[a:b].reshape(-1) for a, b in pairwise(cuts)]
    packed = [pack(piece, n, columns) for piece, n in zip(pieces, rows, strict=True)]
    expected = plain.dot(plain.from_bf16(raw.reshape(-1), 70, columns), x)

    def run() -> tuple[Floats, Floats]:
        out = np.full((2, tokens, 75), np.float32(7))
        _core.matmul(out[0], x, _core.Rows("bf16", pieces, rows, columns), 3)
        _core.matmul(out[1], x, _core.Rows("k12", packed, rows, columns), 3)
        return out[0], out[1]

    for got in everywhere(run):
        same_bits(got[:, 3:73], expected)
        assert (got[:, [0, 1, 2, 73, 74]] == 7).all()


def test_a_token_does_not_see_its_neighbours() -> None:
    """Blocks of tokens, chunks of tokens and single tokens give one result; so do rows alone and together."""
    rng = np.random.default_rng(8)
    w, x = numbers(rng, 11, 260), numbers(rng, 101, 260)
    raw = plain.bf16(w)

    def run() -> tuple[Floats, Floats]:
        together, alone = np.empty((101, 11), F), np.empty((101, 11), F)
        _core.matmul_bf16(together, x, raw.reshape(-1), 11, 0)
        for t in range(0, 101, 7):
            for r in range(11):
                y = np.empty((1, 1), F)
                _core.matmul_bf16(y, x[t : t + 1], raw[r], 1, 0)
                alone[t, r] = y[0, 0]
        return together[::7], alone[::7]

    together, alone = everywhere(run)
    same_bits(together, alone)


def test_what_is_not_finite_stays_in_its_token_and_row() -> None:
    w, x = np.ones((5, 200), F), np.ones((8, 200), F)
    w[1, 150], w[3, 3] = np.nan, np.inf
    x[2, 199], x[5, 0] = np.inf, np.nan
    expected = np.full((8, 5), F(200))
    expected[:, 1], expected[:, 3], expected[2], expected[5] = np.nan, np.inf, np.inf, np.nan
    expected[2, 1] = np.nan
    for got in everywhere(lambda: products(w, x)):
        np.testing.assert_array_equal(got[:, 2:-1], expected)


@pytest.mark.parametrize("columns", [40, 128, 256])
def test_zero_results_are_positive_and_subnormal_ones_kept(columns: int) -> None:
    w, x = np.zeros((4, columns), F), np.full((2, columns), F(2.0**-100))
    w[0] = F(-(2.0**-120))  # every product, every lane and every sum of lanes is -0
    w[1] = F(-0.0)
    w[2, 7] = F(2.0**-45)  # 2^-145, a subnormal
    expected = np.zeros((2, 4), F)
    expected[:, 2] = 2.0**-145
    for got in everywhere(lambda: products(w, x)):
        same_bits(got[:, 2:-1], expected)
    y = np.empty((2, 4), F)
    _core.matmul_f32(y, x, w, 0)
    same_bits(y, expected)
    raw, z = plain.bf16(w[:2]), np.empty((2, columns), F)
    for isa in _core.isas():
        _core.use_isa(isa)
        _core.matmul_t_bf16(z, np.ascontiguousarray(x[:, :2]), raw, 0, 2)
        same_bits(z, np.zeros_like(z))


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 400), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_every_storage_gives_the_same_bits(rows: int, columns: int, tokens: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w, x = numbers(rng, rows, columns), numbers(rng, tokens, columns)
    first, second, third = everywhere(lambda: products(w, x), threads=[1, 2])
    same_bits(first, second)
    same_bits(first, third)
    same_bits(first[:, 2:-1], plain.dot(plain.from_bf16(plain.bf16(w), rows, columns), x))


@pytest.mark.parametrize(
    ("rows", "columns", "tokens", "row", "depth"),
    [(1, 1, 1, 0, 1), (9, 5, 2, 3, 4), (12, 32, 4, 0, 12), (33, 130, 5, 1, 30), (40, 300, 9, 7, 33)],
)
def test_transposed_products_follow_the_contract(rows: int, columns: int, tokens: int, row: int, depth: int) -> None:
    rng = np.random.default_rng(rows * columns)
    w, x = numbers(rng, rows, columns), numbers(rng, tokens, depth)
    raw = plain.bf16(w)
    piece = pack(raw, rows, columns, bytes(range(0x3A, 0x4A)))

    def run() -> tuple[Floats, Floats, Floats]:
        y = [np.empty((tokens, columns), F) for _ in range(3)]
        _core.matmul_t_bf16(y[0], x, at_offset(raw, 1), row, depth)
        _core.matmul_t_k12(y[1], x, piece, rows, row, depth)
        _core.matmul_t_f32(y[2], x, np.ascontiguousarray(w[row : row + depth]))
        return y[0], y[1], y[2]

    first, second, third = everywhere(run)
    same_bits(first, plain.transposed(plain.from_bf16(raw, rows, columns)[row : row + depth], x))
    same_bits(second, first)
    same_bits(third, plain.transposed(w[row : row + depth], x))


@pytest.mark.parametrize(
    ("tokens", "heads", "n", "v", "r", "c"),
    [(1, 1, 1, 1, 0, 1), (1, 3, 5, 6, 2, 33), (3, 2, 8, 4, 4, 64), (7, 4, 6, 7, 3, 150), (60, 2, 3, 2, 1, 20)],
)
def test_the_two_uses_of_kv_b(tokens: int, heads: int, n: int, v: int, r: int, c: int) -> None:
    rng = np.random.default_rng(tokens + heads + n)
    w = numbers(rng, heads * (n + v), c)
    raw = plain.bf16(w)
    w = plain.from_bf16(raw, *w.shape)
    storages = {"bf16": at_offset(raw, 3), "k12": pack(raw, *w.shape, bytes(range(0x30, 0x40)))}
    q, o_lat = numbers(rng, tokens, heads, n + r), numbers(rng, tokens, heads, c)

    def run() -> tuple[Floats, ...]:
        out = []
        for kind, data in storages.items():
            q_lat, o = np.full((tokens, heads, c + r), F(7)), np.full((tokens, heads, v), F(7))
            _core.absorb_query(q_lat, q, data, kind, n, v)
            _core.absorb_value(o, o_lat, data, kind, n, v)
            out += [q_lat, o]
        return tuple(out)

    got = everywhere(run)
    for h in range(heads):
        keys, values = np.split(w[h * (n + v) : (h + 1) * (n + v)], [n])
        for q_lat, o in (got[:2], got[2:]):
            same_bits(q_lat[:, h, :c], plain.transposed(keys, q[:, h, :n]))
            same_bits(q_lat[:, h, c:], q[:, h, n:])
            same_bits(o[:, h], plain.dot(values, o_lat[:, h]))


def test_nothing_is_read_past_the_end() -> None:
    """Weights that end at the end of a mapping, with an unreadable page behind: a read beyond them would kill the process."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the page protection of this test is written for Linux")
    program = """
    import ctypes, mmap, sys
    import numpy as np
    from lilliput import _core
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)

    def at_the_edge(data):
        raw = np.frombuffer(bytes(data), np.uint8)
        size = -(-raw.size // page) * page
        area = mmap.mmap(-1, size + page)
        view = np.frombuffer(area, np.uint8)
        view[size - raw.size : size] = raw
        assert libc.mprotect(ctypes.c_void_p(view.ctypes.data + size), ctypes.c_size_t(page), 0) == 0
        return view[size - raw.size : size]

    rng = np.random.default_rng(0)
    for isa in _core.isas():
        _core.use_isa(isa)
        for columns in (1, 2, 31, 32, 33, 64, 96, 127, 128, 160, 300):
            for rows in (1, 2, 3, 4, 5):
                for tokens in (1, 2, 7):
                    x, y = np.ones((tokens, columns), np.float32), np.empty((tokens, rows), np.float32)
                    w = rng.integers(0, 63, (rows, columns * 2), np.uint8)
                    table = np.arange(16, dtype=np.uint8)
                    _core.matmul_bf16(y, x, at_the_edge(w), rows, 0)
                    _core.matmul_k12(y, x, at_the_edge(_core.k12_encode(w.reshape(-1), rows, columns, table)), rows, 0)
                    t, z = np.ones((tokens, rows), np.float32), np.empty((tokens, columns), np.float32)
                    _core.matmul_t_bf16(z, t, at_the_edge(w), 0, rows)
                    f = at_the_edge(np.ones((rows, columns), np.float32)).view(np.float32).reshape(rows, columns)
                    _core.matmul_f32(y, x, f, 0)
                    _core.matmul_t_f32(z, t, f)
                    if columns % 32 == 0:
                        packed, scales = rng.integers(0, 256, (2, rows * columns // 2), np.uint8)
                        _core.mxfp4_matmul(y, x, at_the_edge(packed), at_the_edge(scales[: rows * columns // 32] % 200), 0)
    print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_callers_rounding_mode_does_not_matter(mode: str, threads: int) -> None:
    rng = np.random.default_rng(2)
    w, x = numbers(rng, 9, 300) * F(2.0**-60), numbers(rng, 2, 300) * F(2.0**-66)
    packed, scales = rng.integers(0, 256, (9, 160), np.uint8), rng.integers(20, 60, (9, 10), np.uint8)
    x4 = x[:, :32].repeat(10, axis=1) * F(2.0**-20)
    expected = plain.dot(plain.from_bf16(plain.bf16(w), 9, 300), x)
    expected4 = plain.dot_mxfp4(packed, scales, x4)
    raw, y, y4 = plain.bf16(w).reshape(-1), np.empty((2, 9), F), np.empty((2, 9), F)

    def body() -> None:
        _core.matmul_bf16(y, x, raw, 9, 0)
        _core.mxfp4_matmul(y4, x4, packed, scales, 0)

    before = _core.threads()
    _core.set_threads(threads, 0)
    try:
        for isa in _core.isas():
            _core.use_isa(isa)
            under_mode(mode, body)
            same_bits(y, expected)
            same_bits(y4, expected4)
    finally:
        _core.use_isa(_core.isas()[-1])
        _core.set_threads(before)


X, Y, W = np.zeros((2, 6), F), np.zeros((2, 5), F), np.zeros(48, np.uint8)
Q = np.zeros((1, 4, 6), F)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _core.matmul_bf16(Y, X, W[1:], 4, 0), "w: needed uint8 with 48 elements, found uint8 [47]"),
        (lambda: _core.Rows("bf16", [W, W], [4], 6), "rows: needed one number for each of 2 pieces, found 1"),
        (lambda: _core.matmul(Y, X, _core.Rows("bf16", [W[:24], W], [2, 4], 6), 0), "y: needed at least 0 + 6 columns"),
        (lambda: _core.matmul(Y, X[:, :5].copy(), _core.Rows("bf16", [W], [4], 6), 0), "x: needed float32 [*, 6], found float32 [2, 5]"),
        (lambda: _core.Rows("q8", [W], [4], 6), "kind: needed `bf16` or `k12`, found `q8`"),
        (lambda: _core.Rows("bf16", [W[:24], W[:24]], [2, 3], 6), "w: needed uint8 with 36 elements, found uint8"),
        (lambda: _core.matmul_bf16(Y, X, W, 4, 2), "y: needed at least 2 + 4 columns (row0 + rows), found float32 [2, 5]"),
        (lambda: _core.matmul_bf16(Y, X.astype(np.float64), W, 4, 0), "x: needed float32 [*, *], found float64 [2, 6]"),
        (lambda: _core.matmul_bf16(Y, X[:, ::2], W[:24], 4, 0), "x: needed a C-contiguous array"),
        (lambda: _core.matmul_bf16(Y[:1], X, W, 4, 0), "y: needed float32 [2, *], found float32 [1, 5]"),
        (lambda: _core.matmul_f32(Y, X, np.zeros((4, 5), F), 0), "w: needed float32 [*, 6], found float32 [4, 5]"),
        (lambda: _core.matmul_t_bf16(Y, X[:, :3], W[:40], 2, 3), "row0, rows: needed a range inside 4 rows, found 2, 3"),
        (lambda: _core.matmul_t_bf16(Y, X, W, 0, 4), "w: needed whole rows of 10 bytes, found 48 bytes"),
        (lambda: _core.absorb_query(X[None], X[None], W, "bf16", 7, 1), "q: needed at least n = 7 values per head, found float32 ["),
        (lambda: _core.absorb_query(X[None], X[None], W, "q8", 2, 1), "kind: needed `bf16` or `k12`, found `q8`"),
        (lambda: _core.absorb_value(X[None], X[None], W, "bf16", 2, 1), "o: needed float32 [1, 2, 1], found float32 [1, 2, 6]"),
        (
            lambda: _core.matmul_bf16(Y, X, W[:0], 2**63, 0),
            "rows: needed a matrix that fits the address space, found 9223372036854775808 x 6",
        ),
        (lambda: _core.absorb_query(Q, Q, W[:0], "bf16", 2, 2**62 - 2), "rows: needed a matrix that fits the address space, found 4 x "),
        (lambda: _core.absorb_query(Q, Q, W[:0], "bf16", 2, 2**64 - 1), "v: needed a number of rows"),
        (lambda: _core.use_isa("avx1024"), "instruction set: needed one of "),
        (lambda: _core.set_threads(0), "threads: needed 1 to 1024, found 0"),
        (lambda: _core.set_threads(-3), "threads: needed 1 to 1024, found 0"),
        (lambda: _core.set_threads(2**62), "threads: needed 1 to 1024, found"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        call()


def test_an_instruction_set_that_is_not_here_is_an_error() -> None:
    elsewhere = "neon" if platform.machine() in ("x86_64", "AMD64") else "avx2"
    before = _core.isa()
    with pytest.raises(ValueError, match=f"found `{elsewhere}`, which this processor or its operating system does not offer"):
        _core.use_isa(elsewhere)
    assert _core.isa() == before == _core.isas()[-1]
