"""Gradients by several processes of one thread each: on a shared machine they wait for each other once a step, threads after every product.

The parameters lie in shared memory, so the workers see every optimiser step at once; what comes back is each one's gradients, which are
added in a fixed order: the same number of processes gives the same sums.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, multiprocessing, nn


class Processes:
    """This process and `count - 1` workers. Open with `processes`."""

    def __init__(self, model: Any, pipes: list[Connection], shared: list[list[Tensor]]) -> None:
        self._model, self._pipes, self._shared = model, pipes, shared

    def gradients(self, rows: np.ndarray) -> float:
        """Leave the gradients of the mean cross entropy of rows [n, T + 1] in the parameters; that mean, in nats a token."""
        count = rows[:, 1:].size
        parts = np.array_split(rows, len(self._pipes) + 1)
        for pipe, part in zip(self._pipes, parts[1:], strict=True):
            pipe.send((part, count))
        torch.set_num_threads(1)
        loss, loads = _learn(self._model, parts[0], count)
        torch.set_num_threads(len(parts))
        for pipe, shared in zip(self._pipes, self._shared, strict=True):
            more, other = pipe.recv()
            loss += more
            loads = [a + b for a, b in zip(loads, other, strict=True)]
            for parameter, grad in zip(self._model.parameters(), shared, strict=True):
                if parameter.grad is not None:
                    parameter.grad += grad
        for gate, load in zip(_gates(self._model), loads, strict=True):
            gate.loads = load
        return loss


def _gates(model: Any) -> list[Any]:
    return list(model.gates()) if hasattr(model, "gates") else []


def _learn(model: Any, part: np.ndarray, count: int) -> tuple[float, list[Tensor]]:
    """Gradients of this part's share of the loss into the parameters; the share, and how often each expert was chosen."""
    rows = torch.from_numpy(part.astype(np.int64))
    with torch.compiler.set_stance("default"):
        loss = model.loss(rows[:, :-1], rows[:, 1:]) / count
        loss.backward()
    return float(loss.detach()), [gate.loads for gate in _gates(model)]


def _serve(model: Any, pipe: Connection, shared: list[Tensor]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the process that was started decides when all stop: then the pipe closes
    torch.set_num_threads(1)
    while True:
        try:
            part, count = pipe.recv()
        except EOFError:
            return
        loss, loads = _learn(model, part, count)
        for parameter, grad in zip(model.parameters(), shared, strict=True):
            if parameter.grad is not None:  # some have no effect and get none: the residual weights of layer 0
                grad.copy_(parameter.grad)
            parameter.grad = None
        pipe.send((loss, loads))


@contextmanager
def processes(model: nn.Module, count: int) -> Iterator[Processes]:
    """`count` processes for the block, this one among them; the model's tensors move to shared memory."""
    model.share_memory()
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    shared: list[list[Tensor]] = []
    workers: list[Any] = []
    try:
        for _ in range(count - 1):
            ours, theirs = context.Pipe()
            grads = [torch.zeros_like(p, requires_grad=False).share_memory_() for p in model.parameters()]
            worker = context.Process(target=_serve, args=(model, theirs, grads), daemon=True)
            worker.start()
            theirs.close()
            pipes.append(ours)
            shared.append(grads)
            workers.append(worker)
        yield Processes(model, pipes, shared)
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join(10)
            worker.kill()
