"""Latent mixture of experts (`kimi-k3.md` section 9): sorted by expert, so that the work follows the experts chosen."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_training.gradients import Gather, GroupedLinear, Spread
from demo_training.parts import OUTPUT_GAIN, Mlp, matrix, ones, rms, situ
from lilliput.model.config import Config


class Gate(nn.Module):
    """The router (section 9); the bias takes part in the choice only and is moved by `balance`, never by a gradient."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        moe = config.moe
        self.weight = nn.Parameter(torch.randn(moe.num_experts, config.hidden_size) / math.sqrt(config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(moe.num_experts))
        self.top_k, self.renormalize, self.factor = moe.top_k, moe.renormalize, moe.scaling_factor
        self.loads = torch.zeros(moe.num_experts)  # how often each was chosen in the last pass

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, D] → chosen ids [T, k], their weights [T, k]."""
        scores = torch.sigmoid(F.linear(x, self.weight))
        ids = torch.topk(scores.detach() + self.e_score_correction_bias, self.top_k, sorted=False).indices
        weight = scores.gather(1, ids)
        if self.top_k > 1 and self.renormalize:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return ids, weight * self.factor

    @torch.no_grad()
    def balance(self, step: float) -> None:
        """Every expert that was chosen too often becomes a little less likely, and the other way round."""
        self.e_score_correction_bias += step * torch.sign(self.loads.mean() - self.loads)


class Experts(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        moe = config.moe
        latent, width = moe.latent_size or config.hidden_size, moe.intermediate_size
        self.bounds = config.situ_beta, config.situ_linear_beta
        self.w13 = nn.Parameter(torch.randn(moe.num_experts, 2 * width, latent) / math.sqrt(latent))
        self.w2 = nn.Parameter(torch.randn(moe.num_experts, latent, width) / math.sqrt(width))

    def forward(self, a: Tensor, ends: list[int]) -> Tensor:
        """a [rows, L] sorted by expert → [rows, L]."""
        gate, up = GroupedLinear.apply(a, self.w13, ends).chunk(2, -1)
        return GroupedLinear.apply(situ(gate, up, *self.bounds), self.w2, ends)


class LatentMoe(nn.Module):
    """Router, experts on the latent width, shared experts beside them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        moe, d = config.moe, config.hidden_size
        self.eps, self.latent, self.latent_norm = config.rms_norm_eps, moe.latent_size, moe.latent_norm
        self.gate = Gate(config)
        self.experts = Experts(config)
        if moe.latent_size is not None:
            self.routed_expert_down_proj = matrix(moe.latent_size, d)
            if moe.latent_norm:
                self.routed_expert_norm = ones(moe.latent_size)
            self.routed_expert_up_proj = matrix(d, moe.latent_size, OUTPUT_GAIN)
        self.shared_experts = Mlp(config, moe.num_shared_experts * moe.intermediate_size) if moe.num_shared_experts else None

    def forward(self, x: Tensor) -> Tensor:
        """x [T, D]."""
        ids, weight = self.gate(x)
        chosen = ids.reshape(-1)
        order = torch.argsort(chosen, stable=True)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        loads = torch.bincount(chosen, minlength=len(self.gate.loads))
        self.gate.loads = loads.float()
        a = x if self.latent is None else F.linear(x, self.routed_expert_down_proj.weight)
        y = self.experts(Spread.apply(a, order, inverse, ids.shape[1]), loads.cumsum(0).tolist())
        y = Gather.apply(y, weight, order, inverse)
        if self.latent is not None:
            if self.latent_norm:
                y = rms(y, self.routed_expert_norm.weight, self.eps)
            y = F.linear(y, self.routed_expert_up_proj.weight)
        return y if self.shared_experts is None else y + self.shared_experts(x)
