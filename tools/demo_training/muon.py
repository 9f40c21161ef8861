"""Muon for the matrices inside the network, AdamW for everything else (embedding, head, router, vectors, convolutions)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration: fast growth of small singular values, all end in 0.7 .. 1.2
MUON_MOMENTUM, ADAM_BETAS, ADAM_EPS = 0.95, (0.9, 0.95), 1e-10


def orthogonalised(g: Tensor) -> Tensor:
    """[N, rows, columns] → each matrix with its singular values moved near 1."""
    a, b, c = QUINTIC
    turned = g.shape[1] > g.shape[2]
    x = g.mT if turned else g
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x.mT if turned else x


class Muon(torch.optim.Optimizer):
    """Momentum, then an orthogonal step: `lr` is its spectral norm, times sqrt(rows / columns) for tall matrices.

    Parameters of two dimensions are matrices, of three are stacks of matrices; all of one shape are worked on at once.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(list(params), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[tuple(p.shape[-2:])].append(p)
            for (rows, columns), params in by_shape.items():
                updates = []
                for p in params:
                    state = self.state[p]
                    if not state:
                        state["momentum"] = torch.zeros_like(p)
                    state["momentum"].lerp_(p.grad, 1 - MUON_MOMENTUM)
                    updates.append(p.grad.lerp(state["momentum"], MUON_MOMENTUM).view(-1, rows, columns))
                stepped = orthogonalised(torch.cat(updates)) * max(1.0, rows / columns) ** 0.5
                for p, update in zip(params, stepped.split([len(u) for u in updates]), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update.view_as(p), alpha=-group["lr"])


IN_ADAM = ("embed_tokens", "lm_head", "gate.weight", "_res_proj", "conv1d")  # matrices by shape, but not by role


def optimisers(model: nn.Module, rates: dict[str, float], weight_decay: float) -> list[torch.optim.Optimizer]:
    """`rates`: of "muon", "embedding", "head" and "vector". Every group remembers its full rate as `peak`."""
    named = list(model.named_parameters())
    muon = [p for name, p in named if p.dim() >= 2 and not any(part in name for part in IN_ADAM)]
    taken = {id(p) for p in muon}
    rest = {
        "embedding": [p for name, p in named if "embed_tokens" in name],
        "head": [p for name, p in named if "lm_head" in name],
    }
    taken |= {id(p) for group in rest.values() for p in group}
    rest["vector"] = [p for _, p in named if id(p) not in taken]
    groups = [{"params": params, "lr": rates[kind]} for kind, params in rest.items()]
    made = [
        Muon(muon, rates["muon"], weight_decay),
        torch.optim.AdamW(groups, betas=ADAM_BETAS, eps=ADAM_EPS, weight_decay=0.0, fused=True),
    ]
    for optimiser in made:
        for group in optimiser.param_groups:
            group["peak"] = group["lr"]
    return made
