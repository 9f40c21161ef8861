"""Formulas and small modules of the network (`kimi-k3.md` sections 7 and 8). D = hidden size, T = tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lilliput.model.config import Config

# Elementwise formulas are compiled: in eager torch they take half the time of a step, all of it spent on moving memory. Compiling
# takes half a minute for each set of shapes, so only training steps do it (`parallel._learn`); everywhere else they run as written.
torch.compiler.set_stance("force_eager")
torch._dynamo.config.recompile_limit = 64
fused = torch.compile(dynamic=False)


@fused
def rms(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


@fused
def situ(gate: Tensor, up: Tensor, beta: float, bound: float | None) -> Tensor:
    """Section 8; the sigmoid takes the raw gate."""
    if bound is not None:
        up = bound * torch.tanh(up / bound)
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * up


@fused
def gated_rms(x: Tensor, w: Tensor, gate: Tensor, eps: float) -> Tensor:
    """A KDA head's output norm, then its gate (section 5, step 8)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w * torch.sigmoid(gate)


@fused
def mix(values: Sequence[Tensor], w: Tensor, eps: float) -> Tensor:
    """Softmax over the depth of 1 .. n states [T, D]; scores from their normed, the result from their raw values (section 7)."""
    scores = [(v * w).sum(-1) * torch.rsqrt(v.square().mean(-1) + eps) for v in values]
    share = torch.softmax(torch.stack(scores), 0).unsqueeze(-1)
    out = share[0] * values[0]
    for p, v in zip(share[1:], values[1:], strict=True):
        out = out + p * v
    return out


class Weight(nn.Module):
    """A parameter under the released name `<name>.weight`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*shape))


def matrix(rows: int, columns: int, gain: float = 1.0) -> Weight:
    """Normal with deviation gain / sqrt(columns)."""
    made = Weight(rows, columns)
    nn.init.normal_(made.weight, std=gain / math.sqrt(columns))
    return made


def ones(size: int) -> Weight:
    made = Weight(size)
    nn.init.ones_(made.weight)
    return made


OUTPUT_GAIN = 0.1  # of the matrices that write into the residual: every layer starts as a small correction


class Mlp(nn.Module):
    """Dense MLP and shared experts (section 8)."""

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        d = config.hidden_size
        self.bounds = config.situ_beta, config.situ_linear_beta
        self.gate_proj, self.up_proj = matrix(width, d), matrix(width, d)
        self.down_proj = matrix(d, width, OUTPUT_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        both = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight]))
        return F.linear(situ(*both.chunk(2, -1), *self.bounds), self.down_proj.weight)
