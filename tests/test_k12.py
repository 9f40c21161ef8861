"""K12: lossless for every bit pattern, laid out as docs/arithmetic.md says to the byte, and never a crash on a bad piece."""

from __future__ import annotations

from collections.abc import Callable

import contract_dot as plain
import numpy as np
import pytest
from contract import F, everywhere
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput import _core


def table_of(w: np.ndarray) -> bytes:
    counts = np.zeros(256, np.int64)
    _core.k12_histogram(counts, w)
    return _core.k12_table(counts)


def encode(w: np.ndarray, rows: int, columns: int, table: bytes | None = None) -> np.ndarray:
    codes = np.frombuffer(table or table_of(w), np.uint8)
    piece = _core.k12_encode(w, rows, columns, codes)
    assert piece.dtype == np.uint8
    assert piece.size == _core.k12_size(w, rows, columns, codes)
    return piece


def random_weights(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return plain.bf16(rng.normal(size=(rows, columns)).astype(F) * F(0.02)).reshape(-1)


EVERY_PATTERN = np.arange(65536, dtype="<u2").view(np.uint8)
SHAPES = [(1, 1), (2, 127), (3, 128), (4, 129), (5, 63), (6, 64), (7, 65), (8, 256), (9, 300), (12, 31)]
TABLES = [None, bytes(range(16)), bytes(range(0xF0, 0x100)), bytes([0x7F, 0xFF, *range(14)]), bytes(16)]


@pytest.mark.parametrize("table", TABLES, ids=["own", "small", "negative", "NaN", "one value"])
def test_every_bit_pattern_comes_back(table: bytes | None) -> None:
    for rows, columns in [(256, 256), (1, 65536), (64, 1024)]:
        piece = encode(EVERY_PATTERN, rows, columns, table)
        for got in everywhere(lambda: _core.k12_decode(piece, rows, columns), threads=[1, 3]):  # noqa: B023
            assert got.tobytes() == EVERY_PATTERN.tobytes()


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("table", [None, bytes(range(0xB0, 0xC0))], ids=["own table", "mostly escapes"])
def test_the_bytes_of_a_piece(rows: int, columns: int, table: bytes | None) -> None:
    """Against an encoder and a decoder written from the description of the format alone."""
    w = random_weights(rows, columns)
    piece = encode(w, rows, columns, table)
    assert piece.tobytes() == plain.k12_encode(w, rows, columns, table or table_of(w))
    assert plain.k12_decode(piece.tobytes(), rows, columns).tobytes() == w.tobytes()
    for got in everywhere(lambda: _core.k12_decode(piece, rows, columns)):
        assert got.tobytes() == w.tobytes()


@settings(max_examples=80)
@given(st.integers(1, 14), st.integers(1, 300), st.binary(min_size=16, max_size=16), st.integers(0, 2**32 - 1), st.integers(1, 256))
def test_round_trip(rows: int, columns: int, table: bytes, seed: int, values: int) -> None:
    w = np.random.default_rng(seed).integers(0, values, rows * columns * 2, np.uint8)
    for codes in (table_of(w), table):
        piece = encode(w, rows, columns, codes)
        assert _core.k12_decode(piece, rows, columns).tobytes() == w.tobytes()
        assert plain.k12_decode(piece.tobytes(), rows, columns).tobytes() == w.tobytes()


def test_threads_do_not_show_in_the_bytes() -> None:
    w = random_weights(37, 500, seed=3)
    (piece,) = everywhere(lambda: encode(w, 37, 500, bytes(range(0x38, 0x48))), threads=[1, 2, 3, 7])
    assert plain.k12_decode(piece.tobytes(), 37, 500).tobytes() == w.tobytes()


def test_histogram_counts_high_bytes_and_adds() -> None:
    rng = np.random.default_rng(1)
    for n in (0, 1, 2, 3, 5, 4096):
        w = rng.integers(0, 256, 2 * n, np.uint8)
        counts = np.full(256, 10, np.int64)
        _core.k12_histogram(counts, w)
        np.testing.assert_array_equal(counts, 10 + np.bincount(w[1::2], minlength=256))


def counts_of(**values: int) -> np.ndarray:
    counts = np.zeros(256, np.int64)
    for name, n in values.items():
        counts[int(name[1:], 16)] = n
    return counts


@pytest.mark.parametrize(
    ("counts", "table"),
    [
        (counts_of(), bytes(range(16))),
        (counts_of(x3f=5, xbf=9, x80=1), bytes([0xBF, 0x3F, 0x80, *range(13)])),  # without a zero, 0x00 has no privilege
        (counts_of(x3f=5, xbf=5, x01=5), bytes([0x01, 0x3F, 0xBF, 0, *range(2, 14)])),  # ties go to the smaller byte
        (counts_of(x00=1, x3f=5, xbf=9), bytes([0, 0xBF, 0x3F, *range(1, 14)])),
        (counts_of(x00=1, **{f"x{b:x}": 100 + b for b in range(0x20, 0x40)}), bytes([0, *range(0x3F, 0x30, -1)])),  # rare, yet first
    ],
)
def test_the_rule_of_the_table(counts: np.ndarray, table: bytes) -> None:
    assert _core.k12_table(counts) == table


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=400))
def test_the_table_of_any_tensor(high: bytes) -> None:
    w = np.zeros((len(high), 2), np.uint8)
    w[:, 1] = np.frombuffer(high, np.uint8)
    assert table_of(w.reshape(-1)) == plain.k12_table(w[:, 1])


def test_zeros_are_zero_bytes() -> None:
    """So that empty blocks of a sparse tensor become holes on disk; also where zeros are rare in the rest of it."""
    w = plain.bf16(2.0 ** np.random.default_rng(0).uniform(-60, 60, (8, 512)).astype(F)).reshape(8, 1024).copy()
    w[:4, 256:512] = 0
    piece = encode(w.reshape(-1), 8, 512)
    assert not piece[768:1536].any()
    assert piece[:768].any()
    assert piece[1536:2304].any()


def test_twelve_bits_and_a_little() -> None:
    rows, columns = 256, 7168
    piece = encode(random_weights(rows, columns), rows, columns)
    assert piece.size <= 0.751 * rows * columns * 2


def piece_for_damage() -> tuple[np.ndarray, int]:
    """A 6 x 200 piece with escapes in both quads, and where its offsets start."""
    w = random_weights(6, 200).reshape(6, 200, 2)
    w[0, 3, 1], w[1, 3, 1], w[0, 150, 1], w[5, 199, 1] = 0x11, 0x12, 0x13, 0x14
    piece = encode(w.reshape(-1), 6, 200, bytes([*range(0x36, 0x3E), *range(0xB6, 0xBE)]))
    offsets = 2 * 2 * 768 + 16
    return piece, offsets


def patched(change: Callable[[np.ndarray, np.ndarray], None]) -> np.ndarray:
    piece, at = piece_for_damage()
    words = piece[at:].view("<u4")
    change(words[:3], words[3:])
    return piece


def swap_first_two(_: np.ndarray, escapes: np.ndarray) -> None:
    escapes[[0, 1]] = escapes[[1, 0]]


def set_offset(q: int, value: int) -> Callable[[np.ndarray, np.ndarray], None]:
    def change(offsets: np.ndarray, _: np.ndarray) -> None:
        offsets[q] = value

    return change


def set_last_escape(value: int) -> Callable[[np.ndarray, np.ndarray], None]:
    def change(_: np.ndarray, escapes: np.ndarray) -> None:
        escapes[-1] = value

    return change


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (piece_for_damage()[0][:-1], "escape offset of quad|bytes by its own escape count"),
        (piece_for_damage()[0][:-4], "escape offset of quad 2: needed"),
        (piece_for_damage()[0][:3000], "6 x 200: needed at least 3100 bytes, found 3000"),
        (np.zeros(0, np.uint8), "6 x 200: needed at least 3100 bytes, found 0"),
        (np.concatenate([piece_for_damage()[0], np.zeros(4, np.uint8)]), "bytes by its own escape count"),
        (patched(set_offset(0, 1)), "first escape offset: needed 0, found 1"),
        (patched(set_offset(1, 10**6)), "escape offset of quad 1: needed 0 to"),
        (patched(set_offset(2, 0)), "escape offset of quad 2: needed"),
        (patched(swap_first_two), "needed ascending positions inside 6 x 200"),
        (patched(set_last_escape(199 << 10 | 2 << 8 | 20)), "ascending positions inside 6 x 200, found row 6, column 199"),
        (patched(set_last_escape(200 << 10 | 1 << 8 | 20)), "ascending positions inside 6 x 200, found row 5, column 200"),
        (patched(set_last_escape(2**32 - 1)), "ascending positions inside 6 x 200"),
    ],
)
def test_a_malformed_piece_is_refused(piece: np.ndarray, message: str) -> None:
    x, y = np.ones((2, 200), F), np.empty((2, 6), F)
    for use in (lambda: _core.k12_decode(piece, 6, 200), lambda: _core.matmul_k12(y, x, piece, 6, 0)):
        with pytest.raises(ValueError, match=message):
            use()


def test_a_piece_of_another_shape_is_refused() -> None:
    piece, _ = piece_for_damage()
    huge = [(2**40, 200), (2**58, 1), (2**59, 1), (2**62, 2**21), (2**63, 2), (6, 2**22 + 1), (6, 2**63)]
    for rows, columns in [(6, 300), (9, 200), (1, 1), (0, 0), *huge]:
        with pytest.raises(ValueError, match="needed"):
            _core.k12_decode(piece, rows, columns)


@settings(max_examples=300)
@given(st.data())
def test_damage_never_crashes(data: st.DataObject) -> None:
    """Random damage to the frame: either a ValueError, or some weights; both uses agree on which."""
    piece, at = piece_for_damage()
    for _ in range(data.draw(st.integers(1, 4))):
        piece[data.draw(st.integers(at - 16, piece.size - 1))] = data.draw(st.integers(0, 255))
    piece = piece[: data.draw(st.integers(0, piece.size))] if data.draw(st.booleans()) else piece
    x, y = np.ones((1, 200), F), np.empty((1, 6), F)
    try:
        _core.k12_decode(piece, 6, 200)
    except ValueError:
        with pytest.raises(ValueError, match="K12 piece"):
            _core.matmul_k12(y, x, piece, 6, 0)
    else:
        _core.matmul_k12(y, x, piece, 6, 0)


def test_wrong_arguments_are_named() -> None:
    w, table = random_weights(2, 3), np.arange(16, dtype=np.uint8)
    for call, message in [
        (lambda: _core.k12_encode(w, 2, 4, table), r"w: needed uint8 with 16 elements, found uint8 \[12\]"),
        (lambda: _core.k12_encode(w, 2, 3, table[:15]), r"table: needed uint8 with 16 elements, found uint8 \[15\]"),
        (lambda: _core.k12_histogram(np.zeros(256, np.int32), w), r"counts: needed int64 \[256\], found int32 \[256\]"),
        (lambda: _core.k12_histogram(np.zeros(256, np.int64), w[1:]), "w: needed whole bf16 values, found 11 bytes"),
        (lambda: _core.k12_table(np.zeros(255, np.int64)), r"counts: needed int64 \[256\], found int64 \[255\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_encoding_into_an_array_writes_all_or_nothing() -> None:
    w = random_weights(6, 200)
    table = np.frombuffer(table_of(w), np.uint8)
    piece = encode(w, 6, 200)
    for room in (0, piece.size - 1):
        small = np.full(room, 7, np.uint8)
        assert _core.k12_encode_into(small, w, 6, 200, table) == piece.size
        assert (small == 7).all()
    large = np.full(piece.size + 5, 7, np.uint8)
    assert _core.k12_encode_into(large, w, 6, 200, table) == piece.size
    assert large[: piece.size].tobytes() == piece.tobytes()
    assert (large[piece.size :] == 7).all()


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_a_piece_matches_its_weights_and_no_others(rows: int, columns: int) -> None:
    w = random_weights(rows, columns)
    piece = encode(w, rows, columns, bytes(range(0x38, 0x48)))
    assert all(everywhere(lambda: _core.k12_matches(piece, w, rows, columns), threads=[1, 3]))
    for at in {0, w.size // 2, w.size - 1}:
        other = w.copy()
        other[at] ^= 1
        assert not any(everywhere(lambda: _core.k12_matches(piece, other, rows, columns), threads=[1, 3]))  # noqa: B023
