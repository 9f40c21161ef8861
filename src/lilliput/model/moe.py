"""Latent mixture of experts: a sigmoid router, experts on a narrower width, one shared MLP beside them."""

from __future__ import annotations

import numpy as np

from lilliput import _core
from lilliput.errors import NumericError
from lilliput.model.config import Config
from lilliput.model.linear import Linear, Mlp
from lilliput.model.ops import Array, rms
from lilliput.weights.weights import Weights


class Moe:
    def __init__(self, config: Config, weights: Weights, layer: int) -> None:
        moe, p, d = config.moe, f"model.layers.{layer}.block_sparse_moe.", config.hidden_size
        self.layer, self.moe, self.eps, self.weights = layer, moe, config.rms_norm_eps, weights
        self.beta, self.linear_beta = config.situ_beta, config.situ_linear_beta
        self.router = Linear(weights, f"{p}gate.weight", moe.num_experts)
        self.bias = weights.resident[f"{p}gate.e_score_correction_bias"]
        if moe.latent_size is not None:
            self.down = Linear(weights, f"{p}routed_expert_down_proj.weight", moe.latent_size)
            self.norm = weights.resident[f"{p}routed_expert_norm.weight"] if moe.latent_norm else None
            self.up = Linear(weights, f"{p}routed_expert_up_proj.weight", d)
        self.shared = mlp(config, weights, f"{p}shared_experts.", moe.num_shared_experts * moe.intermediate_size)

    def __call__(self, x: Array) -> Array:
        """x [N, D] → [N, D]."""
        ids, weights = self._route(x)
        assert self.weights.experts is not None
        chosen = self.weights.experts.request(self.layer, ids)
        latent = x if self.moe.latent_size is None else self.down(x)
        shared = self.shared(x) if self.moe.num_shared_experts else None
        y = chosen.apply(weights, latent, self.beta, self.linear_beta)
        if self.moe.latent_size is not None:
            if self.norm is not None:
                y = rms(y, self.norm, self.eps)  # once, on the sum
            y = self.up(y)
        if shared is not None:
            _core.add(y, shared)
        return y

    def _route(self, x: Array) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int32]], Array]:
        """The experts of each token, ascending, and their weights: [N, k] each."""
        moe = self.moe
        logits = self.router(x)
        ids, weights = np.empty((len(x), moe.top_k), np.int32), np.empty((len(x), moe.top_k), np.float32)
        bad = _core.route(ids, weights, logits, self.bias, moe.top_k, moe.renormalize, moe.scaling_factor)
        if bad >= 0:
            raise NumericError(
                f"layer {self.layer}: a router logit is not finite (token {bad} of the pass); the weights or the state are damaged"
            )
        self.weights.watch.routed(self.layer, ids, weights)
        return ids, weights


def mlp(config: Config, weights: Weights, prefix: str, width: int) -> Mlp:
    """The SiTU MLP whose matrices are named `prefix` + gate_proj, up_proj, down_proj."""
    gate, up = (Linear(weights, f"{prefix}{n}_proj.weight", width) for n in ("gate", "up"))
    return Mlp(gate, up, Linear(weights, f"{prefix}down_proj.weight", config.hidden_size), config.situ_beta, config.situ_linear_beta)
