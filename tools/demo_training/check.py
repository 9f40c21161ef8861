"""Is the network exactly the model, and are the gradients written by hand right? Run before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from demo_training.gradients import AffineScan, Gather, GroupedLinear, Spread, UnitLowerInverse, head_loss
from demo_training.kda import kda_core
from demo_training.network import Network, attend
from demo_training.parallel import processes
from demo_training.parts import mix, situ
from demo_training.release import load_release
from demo_training.shape import RANKS
from demo_training.train import Plan, train
from lilliput.text.bytelevel import byte_level_files

ORACLE_TOLERANCE = 1e-3  # what the oracle's own description asks of a float32 program
GRADIENT_TOLERANCE = 1e-9  # float64 against float64


def check_oracle(directory: Path) -> float:
    """Largest difference between the network's float32 logits and the recorded ones; ValueError beyond the tolerance."""
    recorded = json.loads((directory / "expected.json").read_text())
    logits = np.load(directory / "logits.npy")
    found = load_release(directory).logits([*recorded["prompt_ids"], *recorded["greedy_ids"]]).numpy()
    worst = float(np.abs(found - logits).max())
    if not worst <= ORACLE_TOLERANCE:
        raise ValueError(f"{directory}: needed logits within {ORACLE_TOLERANCE}, found a difference of {worst:.2g}")
    return worst


def check_gradients(seed: int = 0) -> float:
    """Every hand-written backward pass, and the chunked KDA, against autograd through the plain formulas in float64."""
    torch.manual_seed(seed)
    worst = max(case() for case in (_inverse, _scan, _routing, _head, _kda, _attention, _elementwise))
    if not worst <= GRADIENT_TOLERANCE:
        raise ValueError(f"needed gradients within {GRADIENT_TOLERANCE}, found a difference of {worst:.2g}")
    return worst


def compared(ours: Callable[..., Tensor], plain: Callable[..., Tensor], inputs: Sequence[Tensor]) -> float:
    """Largest difference of values and gradients, against the size of the plain ones."""
    results = []
    for f in (ours, plain):
        leaves = [x.clone().requires_grad_() for x in inputs]
        y = f(*leaves)
        weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        results.append([y.detach(), *torch.autograd.grad((y * weight).sum(), leaves)])
    return max(float((a - b).abs().max() / (1 + b.abs().max())) for a, b in zip(*results, strict=True))


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _inverse() -> float:
    a = _normal(3, 2, 16, 16).tril(-1) / 4
    return compared(lambda x: UnitLowerInverse.apply(x.tril(-1)), lambda x: torch.linalg.inv(x.tril(-1) + torch.eye(16).double()), [a])


def _scan() -> float:
    def plain(m: Tensor, n: Tensor) -> Tensor:
        states = [torch.zeros_like(n[0])]
        for c in range(len(n) - 1):
            states.append(m[c] @ states[-1] + n[c])
        return torch.stack(states)

    return compared(AffineScan.apply, plain, [_normal(5, 3, 4, 4) / 2, _normal(5, 3, 4, 6)])


def _routing() -> float:
    tokens, k, experts = 37, 2, 5
    ids = torch.stack([torch.randperm(experts - 1)[:k] for _ in range(tokens)])  # the last expert is never chosen
    order = torch.argsort(ids.reshape(-1), stable=True)
    inverse = torch.argsort(order)
    ends = torch.bincount(ids.reshape(-1), minlength=experts).cumsum(0).tolist()

    def ours(x: Tensor, w: Tensor, weight: Tensor) -> Tensor:
        return Gather.apply(GroupedLinear.apply(Spread.apply(x, order, inverse, k), w, ends), weight, order, inverse)

    def plain(x: Tensor, w: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum("tk,tkoi,ti->to", weight, w[ids], x)

    return compared(ours, plain, [_normal(tokens, 6), _normal(experts, 4, 6), _normal(tokens, k)])


def _head() -> float:
    targets = torch.randint(0, 11, (700,))  # more than one block

    def plain(x: Tensor, w: Tensor) -> Tensor:
        return F.cross_entropy(x @ w.T, targets, reduction="sum")

    return compared(lambda x, w: head_loss(x, w, targets), plain, [_normal(700, 6), _normal(11, 6)])


def _kda() -> float:
    batch, tokens, heads, width = 2, 48, 2, 8

    def plain(qkv: Tensor, z: Tensor, b: Tensor) -> Tensor:
        q, k, v = qkv.unbind(2)
        q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
        alpha, beta = torch.exp(-5 * torch.sigmoid(z)), torch.sigmoid(b)
        state, out = qkv.new_zeros(batch, heads, width, width), []
        for t in range(tokens):
            state = alpha[:, t, :, :, None] * state
            u = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
            state = state + k[:, t, :, :, None] * u[:, :, None, :]
            out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * width**-0.5))
        return torch.stack(out, 1)

    def ours(qkv: Tensor, z: Tensor, b: Tensor) -> Tensor:
        return kda_core(qkv, -5 * torch.sigmoid(z), torch.sigmoid(b))

    return compared(
        ours, plain, [_normal(batch, tokens, 3, heads, width), _normal(batch, tokens, heads, width), _normal(batch, tokens, heads)]
    )


def _attention() -> float:
    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bthn,bshn->bhts", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        return torch.einsum("bhts,bshv->bthv", scores.softmax(-1), v)

    return compared(attend, plain, [_normal(2, 20, 3, 6), _normal(2, 20, 3, 6), _normal(2, 20, 3, 4)])


class _Toy(nn.Module):
    """Enough of a model for `processes`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 9)
        self.unused = nn.Parameter(torch.zeros(2))

    def balance(self, step: float) -> None:
        """Nothing is routed here."""

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.table(ids).flatten(0, 1), targets.flatten(), reduction="sum")


def check_processes(count: int = 2) -> float:
    """Gradients by several processes against those of one; the largest difference, ValueError if they are not the same."""
    rows = np.random.default_rng(1).integers(0, 9, (7, 6)).astype(np.uint16)
    torch.manual_seed(0)
    model, found = _Toy(), []
    for number in (1, count):
        model.zero_grad()
        with processes(model, number) as team:
            loss = team.gradients(rows)
        found.append(torch.cat([torch.tensor([loss]), model.table.weight.grad.flatten()]))
    worst = float((found[0] - found[1]).abs().max())
    if not worst <= 1e-6:
        raise ValueError(f"needed the same gradients from {count} processes as from one, found a difference of {worst:.2g}")
    return worst


def check_resuming() -> float:
    """A run that stops and goes on against one that does not; the largest difference of the parameters, ValueError unless it is 0."""
    rng, results = np.random.default_rng(2), []
    rows, plan = rng.integers(0, 9, (40, 6)).astype(np.uint16), Plan(tokens=200, rows_per_step=4, warm_up=3)
    with TemporaryDirectory() as place:
        for file, content in byte_level_files(RANKS + 256).items():
            (Path(place) / file).write_bytes(content)
        for name, stops in (("whole", [None]), ("stopped", [60, 140, None])):
            for stop in stops:
                torch.manual_seed(0)
                model = _Toy()
                train(model, _ToyTexts(rows, rows[:2], 10, Path(place)), plan, Path(place), name, stop)
            results.append(model.table.weight.detach())
    worst = float((results[0] - results[1]).abs().max())
    if worst:
        raise ValueError(f"needed the same parameters after stopping and going on, found a difference of {worst:.2g}")
    return worst


class _ToyTexts(NamedTuple):
    rows: np.ndarray
    heldout: np.ndarray
    heldout_bytes: int
    tokenizer: Path


def _elementwise() -> float:
    """What `make_demo.py train` may run compiled: here as written against the formulas of the specification."""

    def plain_mix(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        v = torch.stack([a, b], 1)
        scores = (v / (v.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w).sum(-1)
        return torch.einsum("tb,tbd->td", scores.softmax(-1), v)

    def plain_situ(gate: Tensor, up: Tensor) -> Tensor:
        return 4 * torch.tanh(gate / 4) / (1 + torch.exp(-gate)) * 25 * torch.tanh(up / 25)

    mixed = compared(lambda a, b, w: mix([a, b], w, 1e-5), plain_mix, [_normal(9, 6), _normal(9, 6), _normal(6)])
    bounded = compared(lambda g, u: situ(g, u, 4.0, 25.0), plain_situ, [3 * _normal(50), 20 * _normal(50)])
    return max(mixed, bounded)


def parameters(network: Network) -> dict[str, int]:
    """Counts: all, the routed experts', and those one token uses."""
    counts = {"all": sum(p.numel() for p in network.parameters())}
    counts["routed"] = sum(p.numel() for name, p in network.named_parameters() if ".experts." in name)
    moe = network.config.moe
    counts["active"] = counts["all"] - counts["routed"] + counts["routed"] * moe.top_k // moe.num_experts
    return counts
