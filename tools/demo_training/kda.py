"""Kimi Delta Attention over whole sequences, in chunks of 16 tokens (`kimi-k3.md` section 5.1).

With c the running sum of log-decays inside a chunk, k~ = k exp(c), k^ = k exp(-c), q~ = q exp(c), and S the state before the chunk:

    (I + Akk) U = diag(beta) (V - K~ S),   O = Q~ S + Aqk U,   S' = diag(exp(c_C)) (S + K^^T U)

U is linear in S, so every chunk's S' = M S + N can be prepared at once; only that short recurrence runs chunk after chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from demo_training.gradients import AffineScan, UnitLowerInverse
from demo_training.parts import fused

CHUNK = 16  # exp(-c) reaches e^80 with a decay bound of -5: the longest a float32 holds
L2_EPS = 1e-6


@fused
def short_conv(u: Tensor, w: Tensor) -> Tensor:
    """u [B, T, P], w [P, 1, taps] → [B, T, P]; causal, the last tap multiplies the current token, then SiLU."""
    taps, tokens = w.shape[2], u.shape[1]
    past = F.pad(u, (0, 0, taps - 1, 0))
    y = past[:, :tokens] * w[:, 0, 0]
    for j in range(1, taps):
        y = y + past[:, j : j + tokens] * w[:, 0, j]
    return F.silu(y)


@fused
def log_decay(z: Tensor, a_log: Tensor, dt_bias: Tensor, bound: float | None) -> Tensor:
    """z [..., H, K], a_log [H], dt_bias [H * K] → log alpha [..., H, K]."""
    shifted = z + dt_bias.view(z.shape[-2:])
    rate = a_log.exp()[:, None]
    return -rate * F.softplus(shifted) if bound is None else bound * torch.sigmoid(rate * shifted)


def _chunks(x: Tensor) -> Tensor:
    """[B, T, H, K] → [T / 16, B * H, 16, K]."""
    b, t, h, k = x.shape
    return x.view(b, t // CHUNK, CHUNK, h, k).permute(1, 0, 3, 2, 4)


@fused
def scaled(qkv: Tensor, g: Tensor, beta: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
    """Everything of a chunk that is not a product of matrices: q~, k^, k exp(c_C - c), beta [v | k~], exp(c_C).

    qkv [B, T, 3, H, K], g [B, T, H, K], beta [B, T, H], sums [16, 16] lower triangular ones; results [N, B * H, 16, K].
    """
    q, k, v = (_chunks(part) for part in qkv.unbind(2))
    n, b, h, _, width = q.shape
    q = q * (torch.rsqrt((q * q).sum(-1, keepdim=True) + L2_EPS) * width**-0.5)
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + L2_EPS)
    c = sums @ _chunks(g)
    last = c[..., -1:, :]
    up = c.exp()
    weight = beta.view(b, n, CHUNK, h).permute(1, 0, 3, 2).unsqueeze(-1)
    k_up = k * up
    right = torch.cat([v, k_up], -1) * weight
    parts = (q * up, k * (-c).exp(), k * (last - c).exp(), right, last.exp().squeeze(-2))
    return tuple(p.reshape(n, b * h, *p.shape[3:]).contiguous() for p in parts)


def kda_core(qkv: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """qkv [B, T, 3, H, K] after the convolution, log-decays g [B, T, H, K], beta [B, T, H] → o [B, T, H, K]; T a multiple of 16."""
    batch, tokens, _, heads, width = qkv.shape
    sums = torch.tril(torch.ones(CHUNK, CHUNK, dtype=g.dtype))
    q_up, k_down, k_end, right, whole = scaled(qkv, g, beta, sums)
    below = right[..., width:] @ k_down.mT
    w = UnitLowerInverse.apply(below.tril(-1)) @ right
    change = k_end.mT @ w
    w_v, w_k = w.split(width, -1)
    states = AffineScan.apply(torch.diag_embed(whole) - change[..., width:], change[..., :width])
    o = q_up @ states + (q_up @ k_down.mT).tril() @ (w_v - w_k @ states)
    return o.view(-1, batch, heads, CHUNK, width).permute(1, 0, 3, 2, 4).reshape(batch, tokens, heads, width)
