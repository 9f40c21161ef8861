"""An ordinary transformer of the same size, for the comparison in the model card: pre-norm, RoPE, SwiGLU, untied head."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_training.gradients import head_loss
from demo_training.network import attend
from demo_training.parts import OUTPUT_GAIN, fused, matrix, ones, rms

EPS, ROPE_BASE = 1e-5, 10_000.0
HIDDEN, LAYERS, HEADS = 256, 5, 8


@fused
def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """x [B, T, H, W], angles [T, W / 2] → the first half of each head turned against the second."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@fused
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


class PlainLayer(nn.Module):
    def __init__(self, inner: int) -> None:
        super().__init__()
        d = HIDDEN
        self.attention_norm, self.mlp_norm = ones(d), ones(d)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = matrix(d, d), matrix(d, d), matrix(d, d), matrix(d, d, OUTPUT_GAIN)
        self.gate_proj, self.up_proj, self.down_proj = matrix(inner, d), matrix(inner, d), matrix(d, inner, OUTPUT_GAIN)

    def forward(self, s: Tensor, angles: Tensor) -> Tensor:
        x = rms(s, self.attention_norm.weight, EPS)
        qkv = F.linear(x, torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight]))
        q, k, v = qkv.view(*x.shape[:2], 3, HEADS, HIDDEN // HEADS).unbind(2)
        s = s + F.linear(attend(rotated(q, angles), rotated(k, angles), v).flatten(2), self.o_proj.weight)
        x = rms(s, self.mlp_norm.weight, EPS)
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, -1)
        return s + F.linear(swiglu(gate, up), self.down_proj.weight)


class Plain(nn.Module):
    """`parameters` is how many it should have; the inner width of the MLPs is chosen to come nearest."""

    def __init__(self, vocab_size: int, parameters: int) -> None:
        super().__init__()
        fixed = 2 * vocab_size * HIDDEN + HIDDEN + LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN)
        inner = max(1, round((parameters - fixed) / (3 * HIDDEN * LAYERS)))
        self.embed_tokens = matrix(vocab_size, HIDDEN, math.sqrt(HIDDEN) / 2)
        self.layers = nn.ModuleList(PlainLayer(inner) for _ in range(LAYERS))
        self.norm = ones(HIDDEN)
        self.lm_head = matrix(vocab_size, HIDDEN, 0.1)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """ids, targets [B, T] → summed cross entropy in nats."""
        width = HIDDEN // HEADS
        rates = ROPE_BASE ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(ids.shape[1])[:, None] * rates
        s = F.embedding(ids, self.embed_tokens.weight)
        for layer in self.layers:
            s = layer(s, angles)
        return head_loss(rms(s, self.norm.weight, EPS).flatten(0, 1), self.lm_head.weight, targets.flatten())

    def balance(self, step: float) -> None:
        """Nothing is routed here."""
