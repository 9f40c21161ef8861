"""Norms, gates, SiTU, convolution, decay, depth mixing, log-softmax: the contract's bits, and float64 for the formulas themselves."""

from __future__ import annotations

import numpy as np
import pytest
from contract import everywhere, own, same_bits
from contract import kda_decay as slow_decay
from contract import l2_norm as slow_l2
from contract import log_softmax as slow_log_softmax
from contract import mix as slow_mix
from contract import rms_norm as slow_rms
from contract import short_conv as slow_conv
from contract import situ as slow_situ

from lilliput import _core

F = np.float32
WIDTHS = [1, 2, 7, 16, 31, 32, 33, 100, 128, 129, 300]


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """Numbers of very different sizes, zeros of both signs and subnormals among them."""
    random = np.random.default_rng(seed)
    x = (random.normal(0, scale, shape) * 10.0 ** random.integers(-3, 2, shape)).astype(F)
    flat = x.reshape(-1)
    if flat.size > 10:
        flat[3], flat[5], flat[7] = F(0.0), F(-0.0), F(1e-42)
    return x


def sigmoid64(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


@pytest.mark.parametrize("n", WIDTHS)
def test_rms_norm(n: int) -> None:
    x, w = normal(n, 5, n), normal(n + 1, n)

    def run() -> np.ndarray:
        y = np.empty_like(x)
        _core.rms_norm(y, x, w, 1e-5)
        return y

    (y,) = everywhere(run)
    same_bits(y, np.stack([slow_rms(row, w, 1e-5) for row in x]))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, w * wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5), rtol=3e-6, atol=1e-30)


def test_epsilon_of_the_norm_is_inside_the_root_and_shows() -> None:
    x = np.full((1, 8), 1e-3, F)
    y = np.empty_like(x)
    _core.rms_norm(y, x, np.ones(8, F), 1e-5)
    np.testing.assert_allclose(y, 1e-3 / np.sqrt(1e-6 + 1e-5), rtol=1e-6)


@pytest.mark.parametrize("scale", [None, 0.25])
@pytest.mark.parametrize("width", [8, 10, 24, 128])
def test_l2_heads(width: int, scale: float | None) -> None:
    x = normal(width, 3, 5 * width)

    def run() -> np.ndarray:
        y = np.empty_like(x)
        _core.l2_heads(y, x, 5, 1e-6, scale)
        return y

    (y,) = everywhere(run)
    slow = np.stack([slow_l2(head, 1e-6) for head in x.reshape(15, width)])
    same_bits(y.reshape(15, width), slow * F(scale) if scale else slow)
    wide = x.reshape(15, width).astype(np.float64)
    np.testing.assert_allclose(
        y.reshape(15, width), wide / np.sqrt((wide**2).sum(1, keepdims=True) + 1e-6) * (scale or 1.0), rtol=3e-6, atol=1e-30
    )


def test_the_scale_of_a_head_is_one_float32_division() -> None:
    for width in [8, 10, 24, 128, 192]:
        assert _core.inverse_root(width) == float(F(1.0) / np.sqrt(F(width)))


@pytest.mark.parametrize("width", [8, 10, 128])
def test_gated_norm(width: int) -> None:
    o, w, g = normal(width, 4, 3, width), normal(1, width), normal(2, 4, 3 * width, scale=4)

    def run() -> np.ndarray:
        y = np.empty((4, 3 * width), F)
        _core.gated_norm(y, o, w, g, 1e-5)
        return y

    (y,) = everywhere(run)
    slow = np.stack([slow_rms(head, w, 1e-5) for head in o.reshape(12, width)]).reshape(4, 3 * width) * own("sigmoid", g)
    same_bits(y, slow)
    wide = o.astype(np.float64)
    exact = (w * wide / np.sqrt((wide**2).mean(2, keepdims=True) + 1e-5)).reshape(4, -1) * sigmoid64(g)
    np.testing.assert_allclose(y, exact, rtol=4e-6, atol=1e-30)


@pytest.mark.parametrize("linear_beta", [25.0, None])
@pytest.mark.parametrize("n", [1, 17, 512, 20000])
def test_situ(n: int, linear_beta: float | None) -> None:
    gate, up = normal(n, n, scale=5), normal(n + 9, n, scale=30)

    def run() -> np.ndarray:
        y = np.empty_like(gate)
        _core.situ(y, gate, up, 4.0, linear_beta)
        return y

    (y,) = everywhere(run)
    same_bits(y, slow_situ(gate, up, 4.0, linear_beta))
    bounded = linear_beta * np.tanh(up.astype(np.float64) / linear_beta) if linear_beta else up.astype(np.float64)
    exact = 4.0 * np.tanh(gate.astype(np.float64) / 4.0) * sigmoid64(gate) * bounded
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=1e-40)  # the factors may be subnormal on the way


def test_situ_reaches_its_bound_of_100_and_not_more() -> None:
    huge = np.array([1e3, 1e30, np.inf, 3e38], F)
    y = np.empty(4, F)
    _core.situ(y, huge, huge, 4.0, 25.0)
    assert (y == 100.0).all()
    _core.situ(y, huge, -huge, 4.0, 25.0)
    assert (y == -100.0).all()
    _core.situ(y, -huge, huge, 4.0, 25.0)
    assert (np.abs(y) == 0.0).all()


def test_the_sigmoid_of_situ_takes_the_raw_gate() -> None:
    y = np.empty(1, F)
    _core.situ(y, np.array([10.0], F), np.array([1.0], F), 4.0, 25.0)
    bounded = 4.0 * np.tanh(2.5)
    assert abs(float(y[0]) - bounded * sigmoid64(np.array([10.0]))[0] * 25 * np.tanh(0.04)) < 1e-5
    assert abs(float(y[0]) - bounded * sigmoid64(np.array([bounded]))[0] * 25 * np.tanh(0.04)) > 1e-2


@pytest.mark.parametrize("n", [1, 30, 9000, 50000])
def test_add_finish_gate(n: int) -> None:
    x, g = normal(n, n), normal(n + 1, n, scale=10)

    def run() -> tuple[np.ndarray, ...]:
        a, b = x.copy(), x.copy()
        _core.add(a, g)
        _core.gate(b, g)
        c = np.full(n, -0.0, F)
        _core.finish(c)
        return a, b, c

    a, b, c = everywhere(run)
    same_bits(a, x + g)
    same_bits(b, x * own("sigmoid", g))
    same_bits(c, np.zeros(n, F))


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("channels", [1, 16, 37, 400])
def test_short_conv(channels: int, taps: int) -> None:
    u, tail, w = normal(1, 9, channels), normal(2, channels, taps - 1), normal(3, channels, taps)

    def run() -> np.ndarray:
        y = np.empty_like(u)
        _core.short_conv(y, u, tail, w)
        return y

    (y,) = everywhere(run)
    same_bits(y, slow_conv(u, tail, w))
    window = np.concatenate([tail.T, u]).astype(np.float64)
    exact = np.stack([sum(w[:, j] * window[t + j] for j in range(taps)) for t in range(9)])
    with np.errstate(over="ignore"):
        exact = exact / (1.0 + np.exp(-exact))
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_convolution_in_chunks_is_the_convolution(taps: int) -> None:
    """Carrying the tail over any cut gives the same bits, in place or into another array."""
    u, w = normal(1, 11, 20), normal(3, 20, taps)
    tail = normal(4, 20, taps - 1)
    whole = np.empty_like(u)
    _core.short_conv(whole, u, tail, w)
    for cut in range(12):
        first, rest = np.empty((cut, 20), F), np.empty((11 - cut, 20), F)
        _core.short_conv(first, u[:cut], tail, w)
        carried = np.full_like(tail, 99.0)
        _core.conv_tail(carried, tail, u, cut)
        in_place = tail.copy()
        _core.conv_tail(in_place, in_place, u, cut)
        same_bits(carried, in_place)
        _core.short_conv(rest, u[cut:], carried, w)
        same_bits(np.concatenate([first, rest]), whole)


def test_last_tap_meets_the_current_token() -> None:
    w = np.array([[0.0, 0.0, 0.0, 1.0]], F)
    u = np.array([[1.0], [2.0], [3.0]], F)
    y = np.empty_like(u)
    _core.short_conv(y, u, np.full((1, 3), 50.0, F), w)
    same_bits(y, u * own("sigmoid", u))


@pytest.mark.parametrize("bound", [-5.0, None])
@pytest.mark.parametrize(("heads", "width"), [(1, 8), (3, 10), (4, 128)])
def test_kda_decay(heads: int, width: int, bound: float | None) -> None:
    """The released range: exp(A_log) from 0.47 to 11.8, another value per head; gates up to their bound of -5."""
    z, dt = normal(5, 6, heads, width, scale=2), normal(6, heads * width)
    a_log = np.zeros(128, F)
    a_log[:heads] = np.log(np.linspace(0.47, 11.8, heads))

    def run() -> np.ndarray:
        alpha = np.empty_like(z)
        _core.kda_decay(alpha, z, a_log, dt, bound)
        return alpha

    (alpha,) = everywhere(run)
    same_bits(alpha, slow_decay(z, a_log, dt, bound))
    x = z.astype(np.float64) + dt.reshape(heads, width)
    rate = np.exp(a_log[:heads].astype(np.float64))[:, None]
    with np.errstate(over="ignore"):
        g = bound / (1 + np.exp(-rate * x)) if bound else -rate * np.logaddexp(0, x)
    exact = np.exp(g)
    normal_range = exact > 1e-37
    np.testing.assert_allclose(alpha[normal_range], exact[normal_range], rtol=5e-5)
    if bound:
        assert alpha.min() >= F(np.exp(-5.0)) * F(1 - 1e-6)
        assert alpha.max() <= 1.0


def test_a_log_counts_per_head() -> None:
    z, dt = np.ones((1, 2, 8), F), np.zeros(16, F)
    alpha = np.empty_like(z)
    _core.kda_decay(alpha, z, np.array([0.0, 1.0], F), dt, -5.0)
    assert len(set(alpha[0, 0])) == 1
    assert len(set(alpha[0, 1])) == 1
    assert alpha[0, 0, 0] != alpha[0, 1, 0]


@pytest.mark.parametrize("count", [1, 2, 9, 17])
@pytest.mark.parametrize("n", [1, 31, 32, 200])
def test_mix(n: int, count: int) -> None:
    entries = [normal(i, 4, n) for i in range(count)]
    w = normal(77, n)

    def run() -> np.ndarray:
        y = np.empty_like(entries[0])
        _core.mix(y, entries, w, 1e-5)
        return y

    (y,) = everywhere(run)
    same_bits(y, np.stack([slow_mix([e[t] for e in entries], w, 1e-5) for t in range(4)]))
    v = np.stack(entries).astype(np.float64)
    logits = (v / np.sqrt((v**2).mean(-1, keepdims=True) + 1e-5) * w).sum(-1)
    p = np.exp(logits - logits.max(0))
    p /= p.sum(0)
    np.testing.assert_allclose(y, (p[..., None] * v).sum(0), rtol=1e-3, atol=1e-3)


def test_mix_of_one_entry_is_that_entry() -> None:
    x = normal(3, 2, 50)
    y = np.empty_like(x)
    _core.mix(y, [x], normal(4, 50), 1e-5)
    same_bits(y, x + F(0.0))


def test_a_mix_that_underflows_is_a_positive_zero() -> None:
    """A quarter of the smallest negative number rounds to -0; the one + 0 at the end makes it 0."""
    entries = [np.zeros((1, 3), F)] * 3 + [np.full((1, 3), -1e-45, F)]
    (y,) = everywhere(lambda: mixed(entries))
    same_bits(y, np.zeros((1, 3), F))


def mixed(entries: list[np.ndarray]) -> np.ndarray:
    y = np.empty_like(entries[0])
    _core.mix(y, entries, np.ones(y.shape[1], F), 1e-5)
    return y


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 5000])
def test_log_softmax(n: int) -> None:
    x = normal(n, 3, n, scale=8)

    def run() -> np.ndarray:
        y = np.empty_like(x)
        _core.log_softmax(y, x)
        return y

    (y,) = everywhere(run)
    same_bits(y, np.stack([slow_log_softmax(row) for row in x]))
    wide = x.astype(np.float64) - x.max(1, keepdims=True)
    np.testing.assert_allclose(y, wide - np.log(np.exp(wide).sum(1, keepdims=True)), rtol=1e-5, atol=1e-5)


def test_log_softmax_of_far_apart_logits() -> None:
    x = np.array([[0.0, -3e38, 3e38, 3e38]], F)
    y = np.empty_like(x)
    _core.log_softmax(y, x)
    assert np.isneginf(y[0, 1]) or y[0, 1] < -3e38
    np.testing.assert_allclose(y[0, 2:], -np.log(2.0), rtol=1e-6)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """Every row of a batch has the bits it has alone."""
    x, w, g = normal(1, 40, 1000), normal(2, 1000), normal(3, 40, 1000)
    both = np.empty_like(x), np.empty_like(x), np.empty_like(x), np.empty_like(x)
    _core.rms_norm(both[0], x, w, 1e-6)
    _core.gated_norm(both[1], x, w, g, 1e-6)
    _core.mix(both[2], [x, g], w, 1e-6)
    _core.log_softmax(both[3], x)
    for t in range(0, 40, 13):
        one = np.empty((1, 1000), F)
        _core.rms_norm(one, x[t : t + 1], w, 1e-6)
        same_bits(one[0], both[0][t])
        _core.gated_norm(one, x[t : t + 1], w, g[t : t + 1], 1e-6)
        same_bits(one[0], both[1][t])
        _core.mix(one, [x[t : t + 1], g[t : t + 1]], w, 1e-6)
        same_bits(one[0], both[2][t])
        _core.log_softmax(one, x[t : t + 1])
        same_bits(one[0], both[3][t])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: _core.rms_norm(x, x, np.ones(3, F), 1e-5), r"^w: needed float32 \[4\], found float32 \[3\]"),
        (lambda x: _core.rms_norm(np.zeros((2, 4)), x, np.ones(4, F), 1e-5), r"^y: needed float32 with 8 elements, found float64"),
        (lambda x: _core.l2_heads(x, x, 3, 1e-6, None), r"^heads: needed a divisor"),
        (lambda x: _core.mix(x, [], np.ones(4, F), 1e-5), r"^entries: needed at least one"),
        (lambda x: _core.mix(x, [x, x[:1]], np.ones(4, F), 1e-5), r"^entries: needed float32 \[2, 4\], found float32 \[1, 4\]"),
        (lambda x: _core.short_conv(x, x, np.ones((4, 8), F), np.ones((4, 9), F)), r"^w: needed 1 to 8 taps, found 9"),
        (lambda x: _core.short_conv(x, x, np.ones((4, 3), F), np.ones((4, 3), F)), r"^tail: needed float32 \[4, 2\]"),
        (lambda x: _core.conv_tail(np.ones((4, 3), F), np.ones((4, 3), F), x, 3), r"^n: needed at most the 2 tokens"),
        (lambda x: _core.kda_decay(np.ones((1, 3, 2), F), np.ones((1, 3, 2), F), np.ones(2, F), np.ones(6, F), None), r"^a_log: needed"),
        (lambda x: _core.situ(x, x, x[:1], 4.0, None), r"^up: needed float32 with 8 elements"),
        (lambda x: _core.log_softmax(np.zeros((4, 4), F)[:, :2], x), r"^y: needed a C-contiguous array"),
    ],
)
def test_wrong_shapes_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 4), F))  # type: ignore[operator]
