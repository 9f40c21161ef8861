"""The kernels that `bench kernels` measures, at a model's true shapes, in groups that share memory and yardsticks.

A group is made for one size of weights and closed before the next is made. Every run takes other weights than the one before it, as a
pass does, so no cache helps: with few tokens all of the group's, with many, where arithmetic decides, the next part of them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lilliput import _bench, _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.rivals import Rivals
from lilliput.model.config import Config

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]

FEW_TOKENS = 8  # up to so many, a run goes over all weights
PEAK_SECONDS = 0.05
BLOCK = 1 << 22  # weights that are made; the rest is copied
OVERHEAD = 20 * BLOCK + 50_000_000  # bytes beside a group's own: making weights, what numpy and torch keep


class Memory:
    """Arenas that are closed together: on huge pages, as the engine's are."""

    def __init__(self) -> None:
        self._arenas: list[_core.Arena] = []

    def take(self, nbytes: int) -> U8:
        arena = _core.Arena(max(nbytes, 1), _core.threads())
        self._arenas.append(arena)
        return arena.array()

    def close(self) -> None:
        self._arenas.clear()


class Group(ABC):
    """`kernels`: what `--kernels` calls its members; `wanted`: those that were asked for. Subclasses fill `contenders` in `build`."""

    name: ClassVar[str]
    kernels: ClassVar[tuple[str, ...]]

    def __init__(self, config: Config, size: int, wanted: Sequence[str], rivals: Rivals) -> None:
        self.config, self.size, self.wanted, self.rivals = config, size, wanted, rivals
        self.memory = Memory()
        self.contenders: list[Contender] = []
        self.build()

    @staticmethod
    @abstractmethod
    def needs(config: Config, size: int) -> int:
        """Bytes that a group of `size` bytes of weights takes; at most."""

    @abstractmethod
    def build(self) -> None:
        """Make the weights and the contenders."""

    def close(self) -> None:
        self.contenders.clear()
        self.memory.close()


class Cycle:
    """Which of `count` equal parts the next run takes: all of them with few tokens, else as many as `FEW_TOKENS` tokens' work."""

    def __init__(self, count: int, tokens: int) -> None:
        self._count, self._next = count, 0
        self.step = count if tokens <= FEW_TOKENS else max(count * FEW_TOKENS // tokens, 1)

    def first(self) -> range:
        return range(self.step)

    def take(self) -> Iterator[int]:
        for _ in range(self.step):
            yield self._next
            self._next = (self._next + 1) % self._count


def values(shape: tuple[int, ...], seed: int = 0) -> F32:
    """Activations: normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def bf16_weights(to: U8) -> None:
    """Fills `to` with bf16 values like a trained matrix's: normal, the same few million over and over from different places."""
    chance = np.random.default_rng(1)
    block = (0.02 * chance.standard_normal(BLOCK, np.float32)).view(np.uint32)
    source = (block >> 16).astype("<u2").view(np.uint8)
    at = 0
    while at < to.size:
        begin = 2 * int(chance.integers(BLOCK // 2))
        n = min(to.size - at, source.size - begin)
        to[at : at + n] = source[begin : begin + n]
        at += n


def checksum(*arrays: npt.NDArray[Any]) -> int:
    """One number for the bytes of all of them."""
    each = [_core.checksum(np.ascontiguousarray(a).reshape(-1).view(np.uint8)) for a in arrays]
    return each[0] if len(each) == 1 else _core.checksum(np.array(each, np.uint64).view(np.uint8))


def reading(weights: U8) -> Contender:
    """The roofline: every byte of `weights` is loaded, and nothing else."""

    def run() -> Work:
        _bench.read(weights)
        return Work(nbytes=weights.size, stored=weights.size)

    return Contender("read", 0, run, per_isa=False)


def peak() -> Contender:
    """The most multiply-adds that an instruction set can do."""
    rounds: dict[str, int] = {}

    def run() -> Work:
        isa = _core.isa()
        if isa not in rounds:
            rounds[isa] = rounds_of(isa, PEAK_SECONDS)
        return Work(products=_bench.peak(isa, rounds[isa]))

    return Contender("peak", 0, run)


def rounds_of(isa: str, seconds: float) -> int:
    """How many rounds of `_bench.peak` take about so long."""
    rounds, taken = 1000, 0.0
    while taken < seconds / 4:
        rounds *= 4
        start = time.perf_counter()
        _bench.peak(isa, rounds)
        taken = time.perf_counter() - start
    return max(int(rounds * seconds / taken), 1)
