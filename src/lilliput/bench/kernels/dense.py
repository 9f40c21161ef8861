"""The same product by numpy and torch: a dense matrix of as many columns, other rows in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.group import F32, FEW_TOKENS, U8, Cycle, Memory, values
from lilliput.bench.kernels.rivals import Rivals


def dense_rivals(memory: Memory, rivals: Rivals, bf16: U8, columns: int, size: int, tokens: Sequence[int]) -> Iterator[Contender]:
    """numpy's float32 and torch's bf16 product with as many columns: numpy's over `size` bytes of its own, torch's over `bf16`."""
    if rivals.numpy:
        count = max(size // (4 * columns), 1)
        matrix = memory.take(4 * columns * count).view(np.float32).reshape(count, columns)
        matrix[:] = values((1, columns))
        for t in tokens:
            yield Contender("numpy", t, _numpy_run(matrix, t), per_isa=False, is_rival=True)
    if rivals.torch is not None:
        rows = bf16.size // (2 * columns)
        weights = rivals.torch.from_numpy(bf16[: 2 * columns * rows]).view(rivals.torch.bfloat16).view(rows, columns)
        for t in tokens:
            yield Contender("torch", t, _torch_run(rivals.torch, weights, t), per_isa=False, is_rival=True)


def _parts(rows: int, tokens: int) -> tuple[int, Cycle]:
    """Rows of each of the parts that a large matrix is cut into for many tokens, and how they are gone through."""
    count = max(min(tokens // FEW_TOKENS, rows), 1)
    return rows // count, Cycle(count, tokens if count > 1 else 1)


def _numpy_run(matrix: F32, tokens: int) -> Callable[[], Work]:
    step, cycle = _parts(len(matrix), tokens)
    x = values((tokens, matrix.shape[1]))
    y = np.empty((tokens, step), np.float32)

    def run() -> Work:
        done = 0
        for i in cycle.take():
            np.matmul(x, matrix[i * step : (i + 1) * step].T, out=y)
            done += step * matrix.shape[1]
        return Work(products=done * tokens)

    return run


def _torch_run(torch: Any, weights: Any, tokens: int) -> Callable[[], Work]:
    rows, columns = weights.shape
    step, cycle = _parts(rows, tokens)
    x = torch.from_numpy(values((tokens, columns))).to(torch.bfloat16)

    def run() -> Work:
        done = 0
        with torch.inference_mode():
            for i in cycle.take():
                torch.nn.functional.linear(x, weights[i * step : (i + 1) * step])
                done += step * columns
        return Work(products=done * tokens)

    return run
