"""The KDA recurrence: bits of rule 13, float64, and independence of how the tokens are cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from contract import everywhere, kda_step, same_bits

from lilliput import _core

F = np.float32


@dataclass
class Case:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    s: np.ndarray

    def part(self, begin: int, end: int) -> tuple[np.ndarray, ...]:
        return tuple(np.ascontiguousarray(x[begin:end]) for x in (self.q, self.k, self.v, self.alpha, self.beta))


def make(tokens: int, heads: int, width: int) -> Case:
    """Unit keys and queries, decay over its released range e^-5 .. 1, a state that is not zero."""
    random = np.random.default_rng(tokens * 1000 + heads * 100 + width)

    def unit() -> np.ndarray:
        x = random.normal(size=(tokens, heads, width))
        return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(F)

    alpha = np.exp(-5.0 / (1.0 + np.exp(-random.normal(-1, 3, (tokens, heads, width))))).astype(F)
    beta = random.uniform(0, 1, (tokens, heads)).astype(F)
    v = random.normal(size=(tokens, heads, width)).astype(F)
    return Case(unit(), unit(), v, alpha, beta, random.normal(size=(heads, width, width)).astype(F))


def run(case: Case, begin: int = 0, end: int | None = None, s: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    parts = case.part(begin, len(case.q) if end is None else end)
    o, after = np.full_like(parts[0], 7.0), np.full_like(case.s, 7.0)
    _core.kda(o, after, case.s if s is None else s, *parts)
    return o, after


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 8, 10, 16, 24, 50, 64, 70, 128])
def test_bits_of_the_contract(width: int, heads: int) -> None:
    case = make(3, heads, width)
    o, after = everywhere(lambda: run(case))
    for h in range(heads):
        s = case.s[h]
        for t in range(3):
            s, out = kda_step(s, case.q[t, h], case.k[t, h], case.v[t, h], case.alpha[t, h], case.beta[t, h])
            same_bits(o[t, h], out, f"output of head {h}, token {t}")
        same_bits(after[h], s, f"state of head {h}")


@pytest.mark.parametrize(("heads", "width"), [(2, 24), (4, 128)])
def test_against_float64(heads: int, width: int) -> None:
    case = make(40, heads, width)
    o, after = run(case)
    s = case.s.astype(np.float64)
    for t in range(40):
        s = s * case.alpha[t].astype(np.float64)[:, :, None]
        u = case.beta[t][:, None] * (case.v[t] - np.einsum("hij,hi->hj", s, case.k[t].astype(np.float64)))
        s = s + case.k[t].astype(np.float64)[:, :, None] * u[:, None, :]
        np.testing.assert_allclose(o[t], np.einsum("hij,hi->hj", s, case.q[t].astype(np.float64)), atol=3e-6)
    np.testing.assert_allclose(after, s, atol=3e-6)


@pytest.mark.parametrize("width", [10, 128])
def test_any_cut_gives_the_same_bits(width: int) -> None:
    case = make(7, 3, width)
    whole, end = run(case)
    for cut in range(8):
        first, middle = run(case, 0, cut)
        rest, after = run(case, cut, 7, middle)
        same_bits(np.concatenate([first, rest]), whole)
        same_bits(after, end)


def test_no_tokens_copy_the_state() -> None:
    case = make(1, 2, 24)
    _, after = run(case, 0, 0)
    same_bits(after, case.s)


def test_in_place_without_state_and_without_output() -> None:
    case = make(5, 3, 70)
    o, after = run(case)
    in_place = case.s.copy()
    out = np.empty_like(o)
    _core.kda(out, in_place, in_place, *case.part(0, 5))
    same_bits(out, o)
    same_bits(in_place, after)
    untouched = case.s.copy()
    out = np.empty_like(o)
    _core.kda(out, None, untouched, *case.part(0, 5))
    same_bits(out, o)
    same_bits(untouched, case.s)
    only_state = np.empty_like(after)
    _core.kda(None, only_state, case.s, *case.part(0, 5))
    same_bits(only_state, after)


def test_order_of_decay_update_and_output() -> None:
    """By hand, width 1: decay first, the error against the decayed state, the output from the updated one."""
    one = np.ones((1, 1, 1), F)
    s, o = np.full((1, 1, 1), 8.0, F), np.empty((1, 1, 1), F)
    _core.kda(o, s, s, one, one, one * F(10.0), one * F(0.5), np.full((1, 1), 0.25, F))
    assert s[0, 0, 0] == 4.0 + 0.25 * (10.0 - 4.0)
    assert o[0, 0, 0] == s[0, 0, 0]


def test_key_index_comes_first() -> None:
    """A key that is the first unit vector writes the value into the first ROW of S."""
    q, k, v = np.zeros((1, 1, 4), F), np.zeros((1, 1, 4), F), np.arange(1, 5, dtype=F).reshape(1, 1, 4)
    k[0, 0, 0] = 1.0
    s, o = np.zeros((1, 4, 4), F), np.empty((1, 1, 4), F)
    _core.kda(o, s, s, q, k, v, np.ones((1, 1, 4), F), np.ones((1, 1), F))
    assert np.array_equal(s[0, 0], v[0, 0])
    assert not s[0, 1:].any()


def test_minus_zero_and_subnormals_stay() -> None:
    case = make(2, 1, 16)
    case.s[:] = F(-0.0)
    case.s[0, 3] = F(1e-43)
    case.k[:] = F(0.0)
    case.alpha[:] = F(0.5)
    o, after = everywhere(lambda: run(case))
    s = case.s[0]
    for t in range(2):
        s, out = kda_step(s, case.q[t, 0], case.k[t, 0], case.v[t, 0], case.alpha[t, 0], case.beta[t, 0])
        same_bits(o[t, 0], out)
    same_bits(after[0], s)
    assert (after[0, 3] != 0).any()


def test_a_sum_that_underflows_is_a_positive_zero() -> None:
    """S^T k rounds to -0; with v = -0 its sign would turn that of u and of a state that is -0."""
    s = np.array([[[-1e-45, 0], [-0.0, 0]]], F)
    k, v = np.array([[[0.25, 0.5]]], F), np.array([[[-0.0, 0]]], F)
    ones, beta, o, after = np.ones((1, 1, 2), F), np.ones((1, 1), F), np.empty((1, 1, 2), F), np.empty_like(s)
    _core.kda(o, after, s, ones, k, v, ones, beta)
    state, out = kda_step(s[0], ones[0, 0], k[0, 0], v[0, 0], ones[0, 0], beta[0, 0])
    same_bits(after[0], state)
    same_bits(o[0, 0], out)
    assert np.signbit(after[0, 1, 0])


def test_wrong_shapes_are_named() -> None:
    case = make(2, 3, 8)
    q, k, v, alpha, beta = case.part(0, 2)
    o = np.empty_like(q)
    with pytest.raises(ValueError, match=r"^k: needed float32 \[2, 3, 8\], found float32 \[1, 3, 8\]"):
        _core.kda(o, None, case.s, q, k[:1], v, alpha, beta)
    with pytest.raises(ValueError, match=r"^s_in: needed float32 \[3, 8, 8\]"):
        _core.kda(o, None, case.s[:2], q, k, v, alpha, beta)
    with pytest.raises(ValueError, match=r"^beta: needed float32 \[2, 3\]"):
        _core.kda(o, None, case.s, q, k, v, alpha, beta.T)
    with pytest.raises(ValueError, match=r"^s_out: needed float32"):
        _core.kda(o, np.empty((3, 8, 8)), case.s, q, k, v, alpha, beta)
