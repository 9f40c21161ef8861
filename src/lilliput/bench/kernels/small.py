"""Everything that is neither a product with weights nor a state: many small operations, whose share of a pass must stay small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lilliput import _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.group import F32, Group, checksum, values
from lilliput.model.config import Config

Calls = list[Callable[[], object]]
L2_EPS = 1e-6
OPEN = 20.0  # a gate this far open multiplies by one: what is gated again and again does not fade


class Small(Group):
    """A run of each does all of its kind that one token's pass does, at the pass's shapes; experts' SiTU included."""

    name, kernels = "other", ("norms", "mixing", "convolution", "router", "situ", "gates")

    @staticmethod
    def needs(config: Config, size: int) -> int:
        return 100 * 4 * (config.hidden_size + config.intermediate_size + config.kda.num_heads * config.kda.head_dim)

    def build(self) -> None:
        config = self.config
        self._kda = sum(config.is_kda)  # layers of each kind
        self._mla = config.num_layers - self._kda
        self._moe = sum(config.is_moe(i) for i in range(config.num_layers))
        kinds = dict(zip(self.kernels, (self._norms, self._mixing, self._convolution, self._router, self._situ, self._gates), strict=True))
        self.contenders += [_contender(kind, *kinds[kind]()) for kind in self.kernels if kind in self.wanted]

    def _norms(self) -> tuple[Calls, list[F32]]:
        config, eps = self.config, self.config.rms_norm_eps
        widths = [
            (config.hidden_size, 2 * config.num_layers + 1),
            (config.mla.kv_lora_rank, self._mla),
            (config.mla.q_lora_rank or 0, self._mla),
            (config.moe.latent_size or 0, self._moe),
        ]
        calls: Calls = []
        outputs = []
        for width, count in widths:
            x, w, y = values((1, width)), values((width,), 1), np.empty((1, width), np.float32)
            calls += [partial(_core.rms_norm, y, x, w, eps)] * (count if width else 0)
            outputs.append(y)
        heads, dim = config.kda.num_heads, config.kda.head_dim
        flat, o, g, w = values((1, heads * dim)), values((1, heads, dim)), values((1, heads, dim), 1), values((dim,), 2)
        normed, gated = np.empty_like(flat), np.empty_like(o)
        calls += [partial(_core.l2_heads, normed, flat, heads, L2_EPS, None)] * (2 * self._kda)
        calls += [partial(_core.gated_norm, gated, o, w, g, eps)] * self._kda
        return calls, [*outputs, normed, gated]

    def _mixing(self) -> tuple[Calls, list[F32]]:
        """Before attention and MLP of every layer, and once at the end; where no block is frozen yet nothing is mixed."""
        config, size = self.config, self.config.attn_res_block_size or self.config.num_layers
        frozen = [f for layer in range(config.num_layers) for f in (-(-layer // size), layer // size + 1)]
        frozen.append(-(-config.num_layers // size))
        entries = [values((1, config.hidden_size), seed) for seed in range(max(frozen) + 1)]
        w, y = values((config.hidden_size,), 99), np.empty((1, config.hidden_size), np.float32)
        return [partial(_core.mix, y, entries[: f + 1], w, config.rms_norm_eps) for f in frozen if f], [y]

    def _convolution(self) -> tuple[Calls, list[F32]]:
        kda, taps = self.config.kda, self.config.kda.conv_kernel
        wide = kda.num_heads * kda.head_dim
        u, tail, w, y = values((1, wide)), values((wide, taps - 1), 1), values((wide, taps), 2), np.empty((1, wide), np.float32)
        return [partial(_core.short_conv, y, u, tail, w)] * (3 * self._kda), [y]

    def _router(self) -> tuple[Calls, list[F32]]:
        moe = self.config.moe
        logits, bias = values((1, moe.num_experts)), values((moe.num_experts,), 1)
        ids, weights = np.empty((1, moe.top_k), np.int32), np.empty((1, moe.top_k), np.float32)
        return [partial(_core.route, ids, weights, logits, bias, moe.top_k, moe.renormalize, moe.scaling_factor)] * self._moe, [weights]

    def _situ(self) -> tuple[Calls, list[F32]]:
        """Of the dense MLPs, the shared experts, and the chosen ones."""
        config, moe = self.config, self.config.moe
        widths = [
            (config.intermediate_size, config.num_layers - self._moe),
            (moe.num_shared_experts * moe.intermediate_size, self._moe),
            (moe.top_k * moe.intermediate_size, self._moe),
        ]
        calls: Calls = []
        outputs = []
        for width, count in widths:
            g, up, y = values((1, width)), values((1, width), 1), np.empty((1, width), np.float32)
            calls += [partial(_core.situ, y, g, up, config.situ_beta, config.situ_linear_beta)] * count
            outputs.append(y)
        return calls, [y for y, (_, count) in zip(outputs, widths, strict=True) if count]

    def _gates(self) -> tuple[Calls, list[F32]]:
        """Decay and beta of KDA, output gates of MLA, and the sums of the residual stream."""
        config = self.config
        heads, dim = config.kda.num_heads, config.kda.head_dim
        z, a_log, bias = values((1, heads, dim)), values((heads,), 1), values((heads * dim,), 2)
        alpha, beta, b = np.empty_like(z), np.empty((1, heads), np.float32), values((1, heads), 3)
        gated = values((1, config.mla.num_heads * config.mla.v_head_dim), 4)
        total, y = values((1, config.hidden_size), 5), np.zeros((1, config.hidden_size), np.float32)
        calls: Calls = [partial(_core.kda_decay, alpha, z, a_log, bias, config.kda.gate_lower_bound)] * self._kda
        calls += [partial(_core.sigmoid_, beta, b)] * self._kda
        calls += [partial(_core.gate, gated, np.full_like(gated, OPEN))] * self._mla
        calls += [partial(_core.add, y, total)] * (2 * config.num_layers + self._moe)
        return calls, [alpha, beta]


def _contender(kind: str, calls: Calls, outputs: list[F32]) -> Contender:
    def run() -> Work:
        for call in calls:
            call()
        return Work()

    def digest() -> int:
        run()
        return checksum(*outputs)

    return Contender(kind, 1, run, digest)
