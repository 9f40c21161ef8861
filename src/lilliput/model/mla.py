"""Gated multi-head latent attention, always absorbed: scores and values are taken on the latents themselves."""

from __future__ import annotations

import numpy as np

from lilliput import _core
from lilliput.model.batch import Batch
from lilliput.model.config import Config
from lilliput.model.linear import Linear
from lilliput.model.ops import Array, rms
from lilliput.model.state import MlaState
from lilliput.weights.weights import Weights

LATENT_EPS = 1e-6  # of the two latent norms; the reference builds them without passing rms_norm_eps


class Mla:
    def __init__(self, config: Config, weights: Weights, layer: int) -> None:
        mla, p = config.mla, f"model.layers.{layer}.self_attn."
        self.layer, self.mla = layer, mla
        h, n, r, v = mla.num_heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim

        def linear(name: str, rows: int) -> Linear:
            return Linear(weights, f"{p}{name}.weight", rows)

        if mla.q_lora_rank is None:
            self.q = linear("q_proj", h * (n + r))
        else:
            self.q_a, self.q = linear("q_a_proj", mla.q_lora_rank), linear("q_b_proj", h * (n + r))
            self.q_norm = weights.resident[f"{p}q_a_layernorm.weight"]
        self.kv_a = linear("kv_a_proj_with_mqa", mla.kv_lora_rank + r)
        self.kv_norm = weights.resident[f"{p}kv_a_layernorm.weight"]
        self.kv_b, self.tape = f"{p}kv_b_proj.weight", weights.tape
        self.gate = linear("g_proj", h * v) if mla.output_gate else None
        self.o = linear("o_proj", config.hidden_size)
        self.scale = _core.inverse_root(n + r)  # nope plus rope dimensions, although nothing is rotated

    def __call__(self, x: Array, batch: Batch) -> Array:
        """x [N, D] → [N, D]; the latents of every span are written behind its last committed position."""
        mla, tokens = self.mla, len(x)
        heads, n, v, c = mla.num_heads, mla.qk_nope_head_dim, mla.v_head_dim, mla.kv_lora_rank
        q = self.q(x) if mla.q_lora_rank is None else self.q(rms(self.q_a(x), self.q_norm, LATENT_EPS))
        q = q.reshape(tokens, heads, n + mla.qk_rope_head_dim)
        latents = self.kv_a(x)
        latents[:, :c] = rms(latents[:, :c], self.kv_norm, LATENT_EPS)

        with self.tape.hold(self.kv_b) as kv_b:
            absorbed = np.empty((tokens, heads, latents.shape[1]), np.float32)
            _core.absorb_query(absorbed, q, kv_b.data, kv_b.kind, n, v)
            attended = np.empty((tokens, heads, c), np.float32)
            for span, rows in batch:
                state = span.state.layers[self.layer]
                assert isinstance(state, MlaState)
                state.write(span.state.position, latents[rows])
                _core.attend(attended[rows], absorbed[rows], state.addresses(), span.state.position, self.scale)
            o = np.empty((tokens, heads, v), np.float32)
            _core.absorb_value(o, attended, kv_b.data, kv_b.kind, n, v)

        flat = o.reshape(tokens, heads * v)
        if self.gate is not None:
            _core.gate(flat, self.gate(x))
        return self.o(flat)
