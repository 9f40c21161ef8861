"""Those of the core's kernels in which mistakes are plausible, in plain numpy, with the mistakes.

The mutation test replaces a kernel call of the model by `plain_kernels.wrong(kernel, mistake)`, and checks with
`wrong(kernel, "")` that the replacement alone changes nothing. Signatures are the core's: the result comes first.
Float64 inside, results rounded to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray


def wrong(kernel: str, mistake: str) -> Callable[..., Any]:
    """The kernel with a mistake; with "" as it should be."""
    return partial(globals()[kernel], wrong=mistake)


def f64(*arrays: Array) -> list[Array]:
    return [np.asarray(a, np.float64) for a in arrays]


def sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def root(x: Array, eps: float, over: Callable[..., Array] = np.mean) -> Array:
    return np.sqrt(over(x * x, axis=-1, keepdims=True) + eps)


def situ(y: Array, gate: Array, up: Array, beta: float, linear_beta: float | None, *, wrong: str) -> None:
    gate, up = f64(gate, up)
    bounded = beta * np.tanh(gate / beta)
    if linear_beta is not None and wrong != "up not bounded":
        up = linear_beta * np.tanh(up / linear_beta)
    if wrong == "gate not bounded":
        bounded = gate
    y[:] = bounded * sigmoid(bounded if wrong == "sigmoid of the bounded gate" else gate) * up


def short_conv(y: Array, u: Array, tail: Array, w: Array, *, wrong: str) -> None:
    """u [T, P], tail [P, kernel - 1], w [P, kernel]."""
    u, tail, w = f64(u, tail, w)
    past = np.concatenate([tail.T, u])
    out = sum(w[:, j] * past[j : j + len(u)] for j in range(w.shape[1]))
    y[:] = out if wrong == "no silu" else out * sigmoid(out)


def l2_heads(y: Array, x: Array, heads: int, eps: float, scale: float | None, *, wrong: str) -> None:
    """x [T, heads · K]."""
    per_head = np.asarray(x, np.float64).reshape(len(x), heads, -1)
    if wrong == "mean for sum":
        normed = per_head / root(per_head, eps)
    elif wrong == "epsilon outside of the root":
        normed = per_head / (root(per_head, 0.0, np.sum) + eps)
    else:
        normed = per_head / root(per_head, eps, np.sum)
    y[:] = (normed * (1.0 if scale is None else scale)).reshape(y.shape)


def kda_decay(alpha: Array, z: Array, a_log: Array, dt_bias: Array, lower: float | None, *, wrong: str) -> None:
    """z [N, H, K], a_log [H], dt_bias [H · K]."""
    z, a_log, dt_bias = f64(z, a_log, dt_bias)
    heads, dim = z.shape[1:]
    a, bias = np.exp(a_log)[:, None], dt_bias.reshape(heads, dim)
    if wrong == "A_log per channel":  # with the zeros that pad it in the file
        a = np.exp(np.concatenate([a_log, np.zeros(dim)])[:dim])
    if wrong == "dt_bias channel-major":
        bias = dt_bias.reshape(dim, heads).T
    inner = a * z + bias if wrong == "dt_bias after the factor" else a * (z + bias)
    log_alpha = -a * np.logaddexp(0.0, z + bias) if lower is None else lower * sigmoid(inner)
    alpha[:] = np.exp(log_alpha)


def kda(o: Array | None, after: Array | None, s: Array, q: Array, k: Array, v: Array, alpha: Array, beta: Array, *, wrong: str) -> None:
    """The recurrence over T tokens from s [H, key, value]: q, k, v, alpha [T, H, K], beta [T, H]."""
    s, q, k, v, alpha, beta = f64(s, q, k, v, alpha, beta)
    for t in range(len(q)):
        before, kept = s, alpha[t][:, :, None] * s
        seen = before if wrong in ("decay after the update", "delta from the state before decay") else kept
        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", seen, k[t]))
        new = k[t][:, :, None] * u[:, None, :]
        s = alpha[t][:, :, None] * (before + new) if wrong == "decay after the update" else kept + new
        if wrong == "decay per value channel":
            s = alpha[t][:, None, :] * before + new
        if o is not None:
            o[t] = np.einsum("hkv,hk->hv", kept if wrong == "output before the update" else s, q[t])
    if after is not None:
        after[:] = s


def gated_norm(y: Array, o: Array, w: Array, g: Array, eps: float, *, wrong: str) -> None:
    """y, o [N, H, K], w [K], g [N, H · K]."""
    o, w, g = f64(o, w, g)
    g = g.reshape(o.shape)
    gate = g * sigmoid(g) if wrong == "silu gate" else sigmoid(g)
    y[:] = w * (o * gate / root(o * gate, eps)) if wrong == "norm after the gate" else w * (o / root(o, eps)) * gate


def gate(flat: Array, g: Array, *, wrong: str) -> None:
    g = np.asarray(g, np.float64)
    flat *= (g * sigmoid(g) if wrong == "silu gate" else sigmoid(g)).astype(np.float32)


def mix(y: Array, entries: Sequence[Array], w: Array, eps: float, *, wrong: str) -> None:
    """entries [N, D] each, w [D]."""
    v = np.stack(f64(*entries), axis=1)
    normed = v / root(v, eps)
    logit = np.sum((v if wrong == "logits of the values as they are" else normed) * w, axis=-1, keepdims=True)
    p = np.exp(logit - logit.max(axis=1, keepdims=True))
    y[:] = np.sum(p / p.sum(axis=1, keepdims=True) * (normed if wrong == "normalised values" else v), axis=1)


def route(ids: Array, weights: Array, logits: Array, bias: Array, k: int, renormalize: bool, factor: float, *, wrong: str) -> int:
    """logits [N, E] → ids, weights [N, k], ascending id; -1: every logit was finite."""
    logits, bias = f64(logits, bias)
    s = logits if wrong == "no sigmoid" else sigmoid(logits)
    score = s if wrong == "selection without bias" else s + bias
    ids[:] = np.sort(np.argsort(-score, axis=-1, kind="stable")[:, :k], axis=-1)
    chosen = np.take_along_axis(score if wrong == "bias in the weights" else s, ids.astype(np.int64), axis=-1)
    if renormalize and (k > 1 or wrong == "one expert renormalised"):
        chosen = chosen / (chosen.sum(axis=-1, keepdims=True) + 1e-20)
    weights[:] = chosen * factor
    return -1
