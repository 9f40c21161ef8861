"""The arithmetic contract of docs/arithmetic-model.md once more, slowly, in numpy: what the kernels' bits are compared with.

Only elementwise float32 + - * / and sqrt are taken from numpy; the fused multiply-add is exact rational arithmetic rounded once
(or float64 rounded to odd, tested against it); exp, log, sigmoid, tanh and softplus are the core's own, whose accuracy
test_math_functions.py checks against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lilliput import _core

Floats = NDArray[np.float32]
F = np.float32
ZERO = F(0.0)


def fma(a: Floats | np.float32, b: Floats | np.float32, c: Floats | np.float32) -> Floats:
    """a * b + c rounded once: the product is exact in float64, the sum is rounded to odd there, then to float32."""
    with np.errstate(all="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        addend = np.broadcast_to(np.asarray(c, np.float64), np.broadcast_shapes(product.shape, np.shape(c)))
        total = np.asarray(product + addend)
        back = total - product
        error = (product - (total - back)) + (addend - back)
        bits = total.view(np.int64)
        inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
        bits = bits + np.where(inexact, np.where((error > 0) == (total > 0), 1, -1), 0)
        return bits.view(np.float64).astype(F)


def fma_exact(a: float, b: float, c: float) -> np.float32:
    """The same from rational numbers, for finite arguments and a normal or subnormal result that is not zero."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = F(float(exact))  # one of the two neighbours of the exact value, or the value itself
    candidates = [np.nextafter(near, F(-np.inf)), near, np.nextafter(near, F(np.inf))]
    best = min(abs(Fraction(float(x)) - exact) for x in candidates if np.isfinite(x))
    closest = [x for x in candidates if np.isfinite(x) and abs(Fraction(float(x)) - exact) == best]
    return closest[0] if len(closest) == 1 else next(x for x in closest if x.view(np.uint32) % 2 == 0)


def own(name: str, x: Floats | np.float32) -> Floats:
    x = np.ascontiguousarray(x, F)
    y = np.empty_like(x)
    getattr(_core, name + "_")(y, x)
    return y


def reduce(lanes: Floats) -> np.float32:
    """Rule 7."""
    t = lanes.copy()
    for half in (8, 4, 2, 1):
        t = t[:half] + t[half : 2 * half]
    return F(t[0])


def pair_lanes(x: Floats, step: Callable[[Floats, Floats], Floats]) -> np.float32:
    """The pair order: element i in lane (i >> 1) & 15, `step(acc, terms)` with the terms of sixteen lanes at a time."""
    padded = np.zeros((x.size + 127) // 128 * 128, F)
    padded[: x.size] = x
    acc = np.zeros(16, F)
    for block in padded.reshape(-1, 16, 2):
        acc = step(step(acc, block[:, 0]), block[:, 1])
    return reduce(acc) + ZERO


def sum_of_squares(x: Floats) -> np.float32:
    return pair_lanes(x, lambda acc, v: fma(v, v, acc))


def pair_sum(x: Floats) -> np.float32:
    return pair_lanes(x, lambda acc, v: acc + v)


def pair_dot(x: Floats, y: Floats) -> np.float32:
    padded = np.zeros((2, (x.size + 127) // 128 * 128), F)
    padded[0, : x.size], padded[1, : x.size] = x, y
    acc = np.zeros(16, F)
    for a, b in zip(padded[0].reshape(-1, 16, 2), padded[1].reshape(-1, 16, 2), strict=True):
        acc = fma(a[:, 1], b[:, 1], fma(a[:, 0], b[:, 0], acc))
    return reduce(acc) + ZERO


def inverse_rms(x: Floats, eps: float) -> np.float32:
    return F(1.0) / np.sqrt(sum_of_squares(x) / F(x.size) + F(eps))


def rms_norm(x: Floats, w: Floats, eps: float) -> Floats:
    return w * (x * inverse_rms(x, eps))


def l2_norm(x: Floats, eps: float) -> Floats:
    return x * (F(1.0) / np.sqrt(sum_of_squares(x) + F(eps)))


def situ(gate: Floats, up: Floats, beta: float, linear_beta: float | None) -> Floats:
    b = F(beta)
    if linear_beta is not None:
        up = F(linear_beta) * own("tanh", up / F(linear_beta))
    return ((b * own("tanh", gate / b)) * own("sigmoid", gate)) * up


def softmax(x: Floats) -> Floats:
    e = own("exp", x - x.max())
    total = ZERO
    for v in e:
        total = total + v
    return e / total


def mix(entries: Sequence[Floats], w: Floats, eps: float) -> Floats:
    """One token: entries of D values."""
    logits = np.array([pair_dot(v * inverse_rms(v, eps), w) for v in entries], F)
    out = np.zeros_like(entries[0])
    for p, v in zip(softmax(logits), entries, strict=True):
        out = fma(p, v, out)
    return out + ZERO


def log_softmax(x: Floats) -> Floats:
    shifted = x - x.max()
    return shifted - own("log", pair_sum(own("exp", shifted))[None])


def short_conv(u: Floats, tail: Floats, w: Floats) -> Floats:
    window = np.concatenate([tail.T, u])
    taps = w.shape[1]
    out = np.zeros_like(u)
    for t in range(len(u)):
        acc = np.zeros(u.shape[1], F)
        for j in range(taps):
            acc = fma(w[:, j], window[t + j], acc)
        out[t] = acc * own("sigmoid", acc)
    return out


def kda_decay(z: Floats, a_log: Floats, dt_bias: Floats, lower_bound: float | None) -> Floats:
    _, heads, _ = z.shape
    rate = own("exp", a_log[:heads])[:, None]
    x = z + dt_bias.reshape(z.shape[1:])
    g = F(lower_bound) * own("sigmoid", rate * x) if lower_bound is not None else -rate * own("softplus", x)
    return own("exp", g)


def kda_step(s: Floats, q: Floats, k: Floats, v: Floats, alpha: Floats, beta: np.float32) -> tuple[Floats, Floats]:
    """One head, one token: the new state and the output."""
    s = s * alpha[:, None]
    w = np.zeros_like(v)
    for i in range(len(k)):
        w = fma(s[i], k[i], w)
    u = beta * (v - (w + ZERO))
    s = fma(k[:, None], u[None, :], s)
    o = np.zeros_like(v)
    for i in range(len(q)):
        o = fma(s[i], q[i], o)
    return s, o + ZERO


def attend(q: Floats, latents: Floats, scale: float, latent: int) -> Floats:
    """One token over all positions given: q [H, c + r], latents [positions, c + r], result [H, c]."""
    heads = len(q)
    m, total, out = np.full(heads, -np.inf, F), np.zeros(heads, F), np.zeros((heads, latent), F)
    for start in range(0, len(latents), 128):
        block = latents[start : start + 128]
        scores = np.zeros((len(block), heads), F)
        for c in range(block.shape[1]):
            scores = fma(block[:, c, None], q[None, :, c], scores)
        scores = scores * F(scale)
        now = np.maximum(m, scores.max(0))
        if start:
            grown = now > m
            r = np.where(grown, own("exp", m - now), F(1.0))
            total, out = total * r, out * r[:, None]
        for s, row in zip(scores, block, strict=True):
            p = own("exp", s - now)
            total = total + p
            out = fma(p[:, None], row[None, :latent], out)
        m = now
    return out * (F(1.0) / total)[:, None] + ZERO


def route(logits: Floats, bias: Floats, k: int, renormalize: bool, factor: float) -> tuple[NDArray[np.int32], Floats]:
    affinity = own("sigmoid", logits)
    score = affinity + bias
    ids = np.sort(np.argsort(-score, kind="stable")[:k]).astype(np.int32)
    weights = affinity[ids]
    total = ZERO
    for w in weights:
        total = total + w
    if renormalize and k > 1:
        weights = weights / (total + F(1e-20))
    return ids, weights * F(factor)


def everywhere(run: Callable[[], object], threads: Sequence[int] = (1, 2, 3)) -> list[NDArray[np.generic]]:
    """`run` on every instruction set and number of threads; its arrays, which must have the same bits each time."""
    before = _core.threads()
    first: list[NDArray[np.generic]] | None = None
    try:
        for isa in _core.isas():
            _core.use_isa(isa)
            for n in threads:
                _core.set_threads(n, 0)
                result = run()
                arrays = [np.array(a) for a in result] if isinstance(result, tuple) else [np.array(result)]
                if first is None:
                    first = arrays
                for a, b in zip(arrays, first, strict=True):
                    same_bits(a, b, f"{isa} with {n} threads against {_core.isas()[0]} with {threads[0]}")
    finally:
        _core.use_isa(_core.isas()[-1])
        _core.set_threads(before)
    assert first is not None
    return first


def same_bits(a: NDArray[np.generic], b: NDArray[np.generic], what: str = "") -> None:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    assert a.shape == b.shape, (a.shape, b.shape)
    if a.tobytes() != b.tobytes():
        x, y = (v.reshape(-1).view(f"u{v.itemsize}") for v in (a, b))
        at = int(np.flatnonzero(x != y)[0])
        pair = f"{a.reshape(-1)[at]!r}, {b.reshape(-1)[at]!r}"
        raise AssertionError(f"{what}: {int((x != y).sum())} of {x.size} differ, first at {at}: {pair}")
