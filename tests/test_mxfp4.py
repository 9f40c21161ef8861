"""MXFP4 experts: exact values, the order of rule 6, scales at both ends, and the sum over experts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import contract
import contract_dot as plain
import numpy as np
import pytest
from contract import F, Floats, everywhere, fma, same_bits

from lilliput import _core

Parts = list[np.ndarray]


def decoded(packed: np.ndarray, scales: np.ndarray) -> Floats:
    """Every weight by itself: the product with a single 1 is the weight."""
    columns = 2 * packed.shape[1]
    y = np.empty((columns, packed.shape[0]), F)
    _core.mxfp4_matmul(y, np.eye(columns, dtype=F), packed, scales, 0)
    return y.T


def random_rows(rng: np.random.Generator, rows: int, columns: int, low: int = 112, high: int = 124) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(0, 256, (rows, columns // 2), np.uint8), rng.integers(low, high, (rows, columns // 32), np.uint8)


@pytest.fixture(scope="module")
def released(shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The first 64 rows of a real expert."""
    packed = np.fromfile(shared_data / "k3-mxfp4-expert-w1-64rows.packed.bin", np.uint8).reshape(64, 1792)
    scales = np.fromfile(shared_data / "k3-mxfp4-expert-w1-64rows.scales.bin", np.uint8).reshape(64, 112)
    return packed, scales


FIRST_RELEASED = [0.0625, 0.0078125, -0.0078125, -0.0234375, -0.0625, -0.03125, 0.0234375, 0.015625]


def test_released_bytes_decode_exactly(released: tuple[np.ndarray, np.ndarray]) -> None:
    packed, scales = (a[:6] for a in released)
    expected = plain.mxfp4(packed).astype(np.float64) * np.ldexp(1.0, scales.astype(int) - 127).repeat(32, axis=1)
    (got,) = everywhere(lambda: decoded(packed, scales), threads=[2])
    np.testing.assert_array_equal(got.astype(np.float64), expected)
    np.testing.assert_array_equal(got[0, :8], FIRST_RELEASED)


def test_swapped_nibbles_are_noticed(released: tuple[np.ndarray, np.ndarray]) -> None:
    packed, scales = (a[:1] for a in released)
    assert decoded(packed << 4 | packed >> 4, scales)[0, :8].tolist() != FIRST_RELEASED


def test_released_rows_against_float64(released: tuple[np.ndarray, np.ndarray]) -> None:
    packed, scales = released
    x = np.random.default_rng(0).normal(size=(5, 3584)).astype(F)
    w = plain.mxfp4(packed).astype(np.float64) * np.ldexp(1.0, scales.astype(int) - 127).repeat(32, axis=1)

    def run() -> Floats:
        y = np.empty((5, 64), F)
        _core.mxfp4_matmul(y, x, packed, scales, 0)
        return y

    (got,) = everywhere(run)
    assert (np.abs(got - x @ w.T) <= 40 * 2.0**-24 * (np.abs(x) @ np.abs(w.T))).all()


def test_all_nibbles_at_all_scales() -> None:
    """16 values x 256 scales, 255 taken as zero, 0 a subnormal power of two."""
    packed = np.tile(np.arange(16, dtype=np.uint8) << 4 | np.arange(16, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8)[:, None]
    expected = plain.mxfp4(packed).astype(np.float64) * np.ldexp(1.0, np.arange(256) - 127)[:, None]
    expected[255] = 0.0
    with np.errstate(over="ignore"):
        expected = expected.astype(F)  # 3, 4 and 6 times 2^127 are too large: infinite
    for x in everywhere(lambda: decoded(packed, scales), threads=[1]):
        np.testing.assert_array_equal(x, expected)
        assert x[:2, 2].tolist() == [2.0**-128, 2.0**-127]


@pytest.mark.parametrize("columns", [32, 64, 96, 128, 160, 192, 224, 608])
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (5, 1), (4, 2), (7, 3), (3, 9), (70, 61)])
def test_the_order_of_rule_6(columns: int, rows: int, tokens: int) -> None:
    rng = np.random.default_rng(columns + rows + tokens)
    packed, scales = random_rows(rng, rows, columns)
    scales[0, -1] = 0
    x = rng.normal(size=(tokens, columns)).astype(F)
    x[:, rng.integers(0, columns)] *= F(100)
    expected = plain.dot_mxfp4(packed, scales, x)

    def run(shift: int) -> Floats:
        y = np.full((tokens, rows + 3), F(7))
        raw = [np.concatenate([np.zeros(shift, np.uint8), a.reshape(-1)])[shift:] for a in (packed, scales)]
        _core.mxfp4_matmul(y, x, raw[0], raw[1], 1)
        assert (y[:, [0, -2, -1]] == 7).all()
        return y[:, 1:-2]

    for shift in (0, 1):
        (got,) = everywhere(lambda: run(shift), threads=[1, 2])  # noqa: B023
        same_bits(got, expected)


def test_nan_scales_count_as_zero() -> None:
    rng = np.random.default_rng(0)
    packed, scales = random_rows(rng, 6, 96)
    scales[1, 2] = scales[4, 0] = scales[5, 1] = 255
    x = rng.normal(size=(7, 96)).astype(F)
    y = np.empty((7, 6), F)
    _core.mxfp4_matmul(y, x, packed, scales, 0)
    same_bits(y, plain.dot_mxfp4(packed, scales, x))


def parts_of(rng: np.random.Generator, width: int, latent: int) -> Parts:
    w1, w2, w3 = random_rows(rng, width, latent), random_rows(rng, latent, width), random_rows(rng, width, latent)
    return [*w1, *w2, *w3]


def expert_plain(y: Floats, x: Floats, index: np.ndarray, weight: Floats, parts: Parts, beta: float, linear_beta: float | None) -> Floats:
    y, x = y.copy(), x[index]
    hidden = contract.situ(plain.dot_mxfp4(*parts[0:2], x), plain.dot_mxfp4(*parts[4:6], x), beta, linear_beta)
    out = plain.dot_mxfp4(*parts[2:4], hidden)
    y[index] = fma(weight[:, None], out, y[index])
    return y


@pytest.mark.parametrize(("width", "latent"), [(32, 64), (96, 160), (160, 32)])
@pytest.mark.parametrize("linear_beta", [25.0, None])
@pytest.mark.parametrize("chosen", [[0], [4], [1, 2, 6], list(range(0, 120, 2))], ids=["first", "last", "some", "many"])
def test_an_expert(width: int, latent: int, linear_beta: float | None, chosen: list[int]) -> None:
    rng = np.random.default_rng(width + latent)
    tokens = 120 if len(chosen) > 3 else 5 if chosen == [4] else 8
    parts = parts_of(rng, width, latent)
    x, before = rng.normal(size=(tokens, latent)).astype(F), rng.normal(size=(tokens, latent)).astype(F)
    index, weight = np.array(chosen, np.int32), rng.uniform(0, 1, len(chosen)).astype(F)
    expected = expert_plain(before, x, index, weight, parts, 4.0, linear_beta)
    expert = _core.Expert([p.reshape(-1) for p in parts], width, latent)
    assert expert.nan_scales() == 0

    def run() -> Floats:
        y = before.copy()
        _core.experts(y, x, [(index, weight, expert)], 4.0, linear_beta)
        return y

    (got,) = everywhere(run)
    same_bits(got, expected)
    others = np.setdiff1d(np.arange(tokens), index)
    same_bits(got[others], before[others])


@pytest.mark.parametrize("tokens", [1, 3, 40, 150])
def test_several_experts_add_up_one_after_the_other(tokens: int) -> None:
    """Also when they do not fit one lot of tokens, and when an expert's result is made early and added later."""
    rng = np.random.default_rng(tokens)
    width, latent = 64, 96
    experts = [parts_of(rng, width, latent) for _ in range(7)]
    x, before = rng.normal(size=(tokens, latent)).astype(F), rng.normal(size=(tokens, latent)).astype(F)
    chosen = []
    for number, parts in enumerate(experts):
        index = np.flatnonzero(rng.uniform(size=tokens) < (1.0 if number in {2, 5} else 0.4)).astype(np.int32)
        chosen.append((index, rng.uniform(0, 1, len(index)).astype(F), _core.Expert([p.reshape(-1) for p in parts], width, latent)))
    expected = before
    for (index, weight, _), parts in zip(chosen, experts, strict=True):
        expected = expert_plain(expected, x, index, weight, parts, 4.0, 25.0) if len(index) else expected

    def run() -> tuple[Floats, Floats]:
        together, early = before.copy(), before.copy()
        _core.experts(together, x, chosen, 4.0, 25.0)
        for index, weight, expert in chosen:
            values = np.empty((len(index), latent), F)
            _core.expert(values, x, index, expert, 4.0, 25.0)
            _core.accumulate(early, values, index, weight)
        return together, early

    for got in everywhere(run):
        same_bits(got, expected)


def test_no_bound_may_be_written_as_nan() -> None:
    rng = np.random.default_rng(4)
    parts, x = parts_of(rng, 32, 32), 30 * rng.normal(size=(2, 32)).astype(F)
    results = []
    for linear_beta in (None, float("nan"), 2.0):
        y = np.zeros((2, 32), F)
        _core.experts(y, x, [(np.arange(2, dtype=np.int32), np.ones(2, F), _core.Expert(parts, 32, 32))], 4.0, linear_beta)
        results.append(y)
    same_bits(results[0], results[1])
    assert (results[0] != results[2]).any()


def test_an_expert_saturates_at_its_bound() -> None:
    """|situ| is at most beta * linear_beta = 100, however large gate and up are."""
    full = np.full((32, 16), 0x77, np.uint8)  # all weights 6
    identity = np.zeros((32, 16), np.uint8)
    for i in range(32):
        identity[i, i // 2] = 0x2 << 4 * (i % 2)  # 1 on the diagonal
    scales = np.full((32, 1), 127, np.uint8)
    y = np.zeros((1, 32), F)
    x = np.full((1, 32), F(1000))
    expert = _core.Expert([full, scales, identity, scales, full, scales], 32, 32)
    _core.experts(y, x, [(np.zeros(1, np.int32), np.ones(1, F), expert)], 4.0, 25.0)
    np.testing.assert_array_equal(y, np.full((1, 32), F(100)))


@pytest.mark.parametrize(("width", "latent"), [(64, 32), (1568, 704)])
def test_an_expert_counts_the_nan_scales_of_all_its_matrices(width: int, latent: int) -> None:
    """In the first and the last of each, and 300 in a row, which a byte could not count; the threads share the larger one."""
    parts = [p.reshape(-1) for p in parts_of(np.random.default_rng(3), width, latent)]
    damaged = 0
    for scales in parts[1::2]:
        scales[[0, -1]] = scales[1:301] = 255
        damaged += np.count_nonzero(scales == 255)
    (got,) = everywhere(lambda: np.array([_core.Expert(parts, width, latent).nan_scales()], F))
    assert got[0] == damaged


def test_nan_scales_of_an_expert_count_as_zero() -> None:
    rng = np.random.default_rng(2)
    parts = parts_of(rng, 64, 32)
    parts[1][3, 0] = parts[3][5, 1] = parts[3][6, 0] = parts[5][0, 0] = 255
    x, y = rng.normal(size=(50, 32)).astype(F), np.zeros((50, 32), F)
    everyone, nobody = np.arange(50, dtype=np.int32), np.zeros(0, np.int32)
    _core.experts(y, x, [(everyone, np.ones(50, F), _core.Expert(parts, 64, 32))], 4.0, 25.0)
    same_bits(y, expert_plain(np.zeros_like(y), x, everyone, np.ones(50, F), parts, 4.0, 25.0))
    before = y.copy()
    _core.experts(y, x, [(nobody, np.ones(0, F), _core.Expert(parts, 64, 32))], 4.0, 25.0)
    _core.experts(y, x, [], 4.0, 25.0)
    same_bits(y, before)


CHOICE = (np.zeros(1, np.int32), np.ones(1, F))


def test_an_expert_in_one_array_is_the_same_expert() -> None:
    rng = np.random.default_rng(5)
    parts = [p.reshape(-1) for p in parts_of(rng, 64, 32)]
    places = [5 + sum(p.size for p in parts[:i]) for i in range(6)]
    together, x = np.concatenate([np.zeros(5, np.uint8), *parts]), rng.normal(size=(1, 32)).astype(F)
    results = []
    for expert in (_core.Expert(parts, 64, 32), _core.Expert(together, places, 64, 32)):
        y = np.zeros((1, 32), F)
        _core.experts(y, x, [(*CHOICE, expert)], 4.0, 25.0)
        results.append(y)
    same_bits(*results)


def wrong_expert(**change: object) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    given: dict[str, object] = {
        "y": np.zeros((3, 32), F),
        "x": np.zeros((3, 32), F),
        "index": np.array([0, 2], np.int32),
        "weight": np.ones(2, F),
        "parts": parts_of(rng, 64, 32),
        "width": 64,
        "latent": 32,
    }
    given.update(change)
    y, x, index, weight, parts, width, latent = given.values()
    return lambda: _core.experts(y, x, [(index, weight, _core.Expert(parts, width, latent))], 4.0, None)  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (wrong_expert(index=np.array([0, 3], np.int32)), "index: needed ascending rows, below 3, found 3 at 1"),
        (wrong_expert(index=np.array([2, 0], np.int32)), "index: needed ascending rows, below 3, found 0 at 1"),
        (wrong_expert(index=np.array([1, 1], np.int32)), "index: needed ascending rows, below 3, found 1 at 1"),
        (wrong_expert(index=np.array([-1, 1], np.int32)), "index: needed ascending rows, below 3, found -1 at 0"),
        (wrong_expert(index=np.array([0, 2])), r"index: needed int32 \[\*\], found int64 \[2\]"),
        (wrong_expert(weight=np.ones(3, F)), r"weight: needed float32 \[2\], found float32 \[3\]"),
        (wrong_expert(parts=[np.zeros(1024, np.uint8)] * 5), r"parts: needed 6 of them \(w1, w2, w3, each packed and scale\), found 5"),
        (wrong_expert(parts=[np.zeros(1024, np.uint8)] * 6), r"parts\[1\] \(w1.scale\): needed uint8 with 64 elements, found"),
        (
            wrong_expert(x=np.zeros((3, 64), F), y=np.zeros((3, 64), F)),
            "chosen: needed experts of one width that take 64 values each, found",
        ),
        (
            lambda: _core.experts(np.zeros((1, 32), F), np.zeros((1, 32), F), [(*CHOICE, None)], 4.0, None),
            "chosen: needed an Expert, found None",
        ),  # type: ignore[list-item]
        (lambda: _core.Expert(np.zeros(3264, np.uint8), [0, 1024, 1088, 2112, 2176], 64, 32), "parts: needed 6 of them"),
        (
            lambda: _core.Expert(np.zeros(3263, np.uint8), [0, 1024, 1088, 2112, 2176, 3200], 64, 32),
            "places: needed a place for 64 bytes within 3263, found 3200 for part 5",
        ),
        (wrong_expert(index=np.array(1, np.int32)), r"index: needed int32 \[\*\], found int32 \[\]"),
        (
            lambda: _core.accumulate(np.zeros((1, 32), F), np.zeros((1, 32), F), np.array(0, np.int32), np.ones(1, F)),
            r"index: needed int32 \[\*\], found int32 \[\]",
        ),
        (
            lambda: _core.expert(
                np.zeros((1, 32), F),
                np.zeros((1, 32), F),
                np.array(0, np.int32),
                _core.Expert(np.zeros(3264, np.uint8), [0] * 6, 32, 32),
                4.0,
                None,
            ),
            r"index: needed int32 \[\*\], found int32 \[\]",
        ),
        (wrong_expert(width=60), "width, latent: needed multiples of 32 .one MXFP4 group., found 60, 32"),
        (
            lambda: _core.mxfp4_matmul(np.zeros((1, 4), F), np.zeros((1, 48), F), np.zeros(96, np.uint8), np.zeros(4, np.uint8), 0),
            "x: needed a width that is a multiple of 32 .one MXFP4 group., found 48",
        ),
        (
            lambda: _core.mxfp4_matmul(np.zeros((1, 4), F), np.zeros((1, 64), F), np.zeros(100, np.uint8), np.zeros(8, np.uint8), 0),
            r"packed: needed whole rows of 32 bytes, found 100 bytes",
        ),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
