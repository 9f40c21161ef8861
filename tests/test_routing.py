"""Router top-k, argmax, and the watch for numbers that are not finite."""

from __future__ import annotations

import numpy as np
import pytest
from contract import everywhere, own, same_bits
from contract import route as slow_route

from lilliput import _core

F = np.float32


def run(logits: np.ndarray, bias: np.ndarray, k: int, renormalize: bool = True, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    ids, weights = np.full((len(logits), k), -9, np.int32), np.full((len(logits), k), -9, F)
    assert _core.route(ids, weights, logits, bias, k, renormalize, factor) == -1
    return ids, weights


def data(rows: int, experts: int, spread: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(rows * experts)
    return random.normal(0, spread, (rows, experts)).astype(F), random.normal(0, 0.2, experts).astype(F)


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("experts", "k"), [(1, 1), (16, 1), (16, 4), (17, 17), (896, 16)])
def test_bits_of_the_contract(experts: int, k: int, renormalize: bool) -> None:
    logits, bias = data(20, experts)
    ids, weights = everywhere(lambda: run(logits, bias, k, renormalize, 2.5))
    for row in range(20):
        want_ids, want_weights = slow_route(logits[row], bias, k, renormalize, 2.5)
        same_bits(ids[row], want_ids)
        same_bits(weights[row], want_weights)
    affinity = 1 / (1 + np.exp(-logits.astype(np.float64)))
    chosen = np.take_along_axis(affinity, ids.astype(np.int64), 1)
    exact = chosen / chosen.sum(1, keepdims=True) if renormalize and k > 1 else chosen
    np.testing.assert_allclose(weights, 2.5 * exact, rtol=1e-5)


def test_bias_selects_but_does_not_weigh() -> None:
    logits = np.array([[4.0, 3.0, 2.0, 1.0]], F)
    bias = np.array([-1.0, 0.0, 0.0, 5.0], F)
    ids, weights = run(logits, bias, 2, renormalize=False)
    assert ids.tolist() == [[1, 3]]
    same_bits(weights[0], own("sigmoid", logits[0, [1, 3]]))


def test_ties_go_to_the_lower_id() -> None:
    logits = np.zeros((1, 40), F)
    logits[0, 30] = 1.0
    ids, _ = run(logits, np.zeros(40, F), 4)
    assert ids.tolist() == [[0, 1, 2, 30]]
    logits[0] = 50.0  # all saturated at 1
    logits[0, 0] = 49.0
    ids, _ = run(logits, np.zeros(40, F), 3)
    assert ids.tolist() == [[0, 1, 2]]


def test_top_1_is_not_renormalized_even_where_asked() -> None:
    logits = np.array([[0.0, 1.0]], F)
    _, weights = run(logits, np.zeros(2, F), 1, renormalize=True)
    same_bits(weights[0], own("sigmoid", logits[0, 1:]))


def test_vanishing_affinities_divide_by_the_epsilon() -> None:
    """All affinities zero: 0 / 1e-20, not 0 / 0."""
    ids, weights = run(np.full((1, 8), -200.0, F), np.zeros(8, F), 3)
    assert ids.tolist() == [[0, 1, 2]]
    assert (weights == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_first_row_that_is_not_finite_is_named(bad: float, threads: int) -> None:
    logits, bias = data(64, 896)
    before = _core.threads()
    _core.set_threads(threads, 0)
    try:
        for rows in ([63], [5, 6, 50], [40, 2], [0]):
            broken = logits.copy()
            broken[rows, 895] = bad
            ids, weights = np.empty((64, 16), np.int32), np.empty((64, 16), F)
            assert _core.route(ids, weights, broken, bias, 16, True, 1.0) == min(rows)
            assert _core.nonfinite(broken) == min(rows)
    finally:
        _core.set_threads(before)
    shifted = bias.copy()
    shifted[7] = bad
    assert _core.route(np.empty((64, 16), np.int32), np.empty((64, 16), F), logits, shifted, 16, True, 1.0) == 0


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 163840])
def test_argmax(n: int) -> None:
    x = np.random.default_rng(n).integers(-5, 5, (3, n)).astype(F)

    def run_both() -> tuple[np.ndarray, ...]:
        out = np.empty(3, np.int64)
        _core.argmax_rows(out, x)
        return out, np.array([_core.argmax(row) for row in x])

    rows, single = everywhere(run_both)
    assert rows.tolist() == x.argmax(1).tolist()
    assert single.tolist() == rows.tolist()


def test_argmax_takes_the_lowest_id_and_zeros_are_equal() -> None:
    assert _core.argmax(np.array([-1.0, -0.0, 0.0, 0.0], F)) == 1
    assert _core.argmax(np.full(40, -3e38, F)) == 0
    x = np.zeros(100, F)
    x[[37, 80]] = 1.0
    assert _core.argmax(x) == 37


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")])
@pytest.mark.parametrize("at", [0, 16, 99])
def test_argmax_refuses_what_is_not_finite(bad: float, word: str, at: int) -> None:
    x = np.zeros((2, 100), F)
    x[1, at] = bad
    with pytest.raises(ValueError, match=f"^logits: needed finite numbers, found {word} at entry {at}$"):
        _core.argmax(x[1])
    with pytest.raises(ValueError, match=f"found {word} at row 1, entry {at}$"):
        _core.argmax_rows(np.empty(2, np.int64), x)


def test_nonfinite_on_every_shape() -> None:
    assert _core.nonfinite(np.zeros((0, 4), F)) == -1
    assert _core.nonfinite(np.full((3, 5), np.finfo(F).max, F)) == -1
    assert _core.nonfinite(np.full(3, 1e-45, F)) == -1
    assert _core.nonfinite(np.array([1.0, np.nan], F)) == 0


def test_wrong_arguments_are_named() -> None:
    logits, bias = data(2, 8)
    ids, weights = np.empty((2, 4), np.int32), np.empty((2, 4), F)
    for k in (0, 9):
        with pytest.raises(ValueError, match=rf"^k: needed 1 to 8 experts, found {k}"):
            _core.route(ids, weights, logits, bias, k, True, 1.0)
    with pytest.raises(ValueError, match=r"^ids: needed int32 \[2, 4\], found int64"):
        _core.route(ids.astype(np.int64), weights, logits, bias, 4, True, 1.0)
    with pytest.raises(ValueError, match=r"^bias: needed float32 \[8\]"):
        _core.route(ids, weights, logits, bias[:7], 4, True, 1.0)
