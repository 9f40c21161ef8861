"""Operations whose gradient autograd would compute slowly on a CPU: each has its own backward pass, checked by `make_demo.py check`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

HEAD_ROWS = 512  # tokens whose logits exist at a time: their block stays in the cache


class UnitLowerInverse(Function):
    """(I + A)^-1 of strictly lower triangular A [..., C, C], C <= 16: A^16 = 0, so four doublings of the Neumann series are exact."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        power = -a
        inverse = power + torch.eye(a.shape[-1], dtype=a.dtype)
        for _ in range(3):
            power = power @ power
            inverse = inverse + inverse @ power
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.mT
        return -(turned @ grads[0] @ turned)


class AffineScan(Function):
    """S_c = M_c S_(c-1) + N_c from S_0 = 0 → the state BEFORE each chunk. M [C, B, K, K], N [C, B, K, V] → [C, B, K, V]."""

    @staticmethod
    def forward(ctx: Any, m: Tensor, n: Tensor) -> Tensor:
        states = torch.empty_like(n)
        states[0] = 0
        for c in range(len(n) - 1):
            torch.baddbmm(n[c], m[c], states[c], out=states[c + 1])
        ctx.save_for_backward(m, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        m, states = ctx.saved_tensors
        grad = grads[0].contiguous()
        after = torch.empty_like(grad)  # of the state after each chunk
        after[-1] = 0
        for c in range(len(m) - 1, 0, -1):
            torch.baddbmm(grad[c], m[c].mT, after[c], out=after[c - 1])
        return after @ states.mT, after


class Spread(Function):
    """x [T, D] → the rows every (token, place) pair needs, sorted by expert: x[order // k], `order` a permutation of T * k."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x.index_select(0, order // k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return grads[0].index_select(0, inverse).view(-1, ctx.k, grads[0].shape[1]).sum(1), None, None, None


class Gather(Function):
    """y [T * k, D] sorted by expert, weight [T, k] → [T, D]: each token's weighted sum over its experts."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        back = y.index_select(0, inverse).view(*weight.shape, -1)
        ctx.save_for_backward(back, weight, order)
        return torch.bmm(weight.unsqueeze(1), back).squeeze(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        back, weight, order = ctx.saved_tensors
        k = weight.shape[1]
        grad_weight = torch.bmm(back, grads[0].unsqueeze(2)).squeeze(2)
        grad_y = grads[0].index_select(0, order // k) * weight.reshape(-1, 1).index_select(0, order)
        return grad_y, grad_weight, None, None


class GroupedLinear(Function):
    """x [rows, in], sorted by group; weight [G, out, in]; `ends[g]` is one past the last row of group g → [rows, out]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ends: list[int]) -> Tensor:
        out = x.new_empty(len(x), weight.shape[1])
        for g, (begin, end) in enumerate(_spans(ends)):
            torch.mm(x[begin:end], weight[g].T, out=out[begin:end])
        ctx.save_for_backward(x, weight)
        ctx.ends = ends
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_x, grad_weight = torch.empty_like(x), torch.empty_like(weight)
        for g, (begin, end) in enumerate(_spans(ctx.ends)):
            torch.mm(grad[begin:end], weight[g], out=grad_x[begin:end])
            torch.mm(grad[begin:end].T, x[begin:end], out=grad_weight[g])
        return grad_x, grad_weight, None


def _spans(ends: list[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends[:-1]], ends, strict=True))


class HeadLoss(Function):
    """x [T, D], head [V, D], targets [T] → the cross entropies in nats, summed over the tokens.

    The logits are never all there: forward makes both gradients block by block and backward only scales them.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, head: Tensor, targets: Tensor, learns: bool) -> Tensor:
        total = x.new_zeros(())
        if learns:
            grad_x, grad_head = torch.empty_like(x), torch.zeros_like(head)
        for begin in range(0, len(x), HEAD_ROWS):
            rows = slice(begin, begin + HEAD_ROWS)
            logits = x[rows] @ head.T
            picked = logits.gather(1, targets[rows, None])
            peak = logits.amax(1, keepdim=True)
            mass = logits.sub_(peak).exp_().sum(1, keepdim=True)
            total += (mass.log() + peak - picked).sum()
            if learns:
                logits.div_(mass)
                logits.scatter_add_(1, targets[rows, None], torch.full_like(picked, -1.0))
                torch.mm(logits, head, out=grad_x[rows])
                grad_head.addmm_(logits.T, x[rows])
        if learns:
            ctx.save_for_backward(grad_x, grad_head)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_x, grad_head = ctx.saved_tensors
        return grad_x * grads[0], grad_head * grads[0], None, None


def head_loss(x: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """`HeadLoss`; under `no_grad` without the work for gradients, which a Function cannot see for itself."""
    return HeadLoss.apply(x, head, targets, torch.is_grad_enabled())
