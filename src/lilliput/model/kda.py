"""Kimi Delta Attention, always by the recurrence, so that any cutting of a prompt gives the same bits."""

from __future__ import annotations

import numpy as np

from lilliput import _core
from lilliput.model.batch import Batch, Span
from lilliput.model.config import Config
from lilliput.model.linear import Linear
from lilliput.model.ops import Array, l2_heads, short_conv, sigmoid
from lilliput.model.state import Journal, KdaState, Rewrite, tails_after
from lilliput.weights.weights import Weights

L2_EPS = 1e-6  # inside the root of the q and k norms; not configurable


class Kda:
    def __init__(self, config: Config, weights: Weights, layer: int) -> None:
        kda, p = config.kda, f"model.layers.{layer}.self_attn."
        self.layer, self.kda, self.eps = layer, kda, config.rms_norm_eps
        wide = kda.num_heads * kda.head_dim

        def linear(name: str, rows: int) -> Linear:
            return Linear(weights, f"{p}{name}.weight", rows)

        self.q, self.k, self.v = (linear(f"{n}_proj", wide) for n in "qkv")
        self.convs = [weights.resident[f"{p}{n}_conv1d.weight"].reshape(wide, kda.conv_kernel) for n in "qkv"]
        self.f_a, self.f_b, self.b = linear("f_a_proj", kda.head_dim), linear("f_b_proj", wide), linear("b_proj", kda.num_heads)
        self.gate = [linear("g_proj", wide)] if kda.full_rank_gate else [linear("g_a_proj", kda.head_dim), linear("g_b_proj", wide)]
        self.a_log = np.ascontiguousarray(weights.resident[f"{p}A_log"][: kda.num_heads])
        self.dt_bias = weights.resident[f"{p}dt_bias"]
        self.o_norm = weights.resident[f"{p}o_norm.weight"]
        self.o = linear("o_proj", config.hidden_size)

    def __call__(self, x: Array, batch: Batch) -> Array:
        """x [N, D] → [N, D]; each span's state is read, its change recorded."""
        shape = (len(x), self.kda.num_heads, self.kda.head_dim)
        projected = (self.q(x), self.k(x), self.v(x))
        z = self.f_b(self.f_a(x)).reshape(shape)
        alpha = np.empty_like(z)
        _core.kda_decay(alpha, z, self.a_log, self.dt_bias, self.kda.gate_lower_bound)
        beta = sigmoid(self.b(x))
        g = x
        for linear in self.gate:
            g = linear(g)
        o = np.empty(shape, np.float32)
        for span, rows in batch:
            self._recur(o[rows], span, [u[rows] for u in projected], alpha[rows], beta[rows], alone=len(batch.spans) == 1)
        normed = np.empty_like(g)
        _core.gated_norm(normed.reshape(shape), o, self.o_norm, g, self.eps)
        return self.o(normed)

    def _recur(self, o: Array, span: Span, inputs: list[Array], alpha: Array, beta: Array, *, alone: bool) -> None:
        state = span.state.layers[self.layer]
        assert isinstance(state, KdaState)
        heads, dim = self.kda.num_heads, self.kda.head_dim
        q, k, v = (short_conv(u, tail, w) for u, tail, w in zip(inputs, state.tails, self.convs, strict=True))
        q = l2_heads(q, heads, L2_EPS, _core.inverse_root(dim)).reshape(o.shape)
        k = l2_heads(k, heads, L2_EPS, None).reshape(o.shape)
        v = v.reshape(o.shape)
        if span.change.is_journalled:
            _core.kda(o, None, state.s, q, k, v, alpha, beta)
            if not alone:  # views would keep the projections of every other span of the pass in memory
                inputs, alpha, beta = [u.copy() for u in inputs], alpha.copy(), beta.copy()
            span.change.kda[self.layer] = Journal(inputs, k, v, alpha, beta)
        else:
            after = np.empty_like(state.s)
            _core.kda(o, after, state.s, q, k, v, alpha, beta)
            span.change.kda[self.layer] = Rewrite(after, tails_after(state.tails, inputs, len(o)))
