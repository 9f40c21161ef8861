"""What works on a sequence's state: the KDA recurrence, and attention over latents."""

from __future__ import annotations

import numpy as np

from lilliput import _bench, _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.group import FEW_TOKENS, Cycle, Group, checksum, peak, values
from lilliput.model.config import Config
from lilliput.model.state import BLOCK

POSITIONS = 32768  # of a long context


class Recurrence(Group):
    """One KDA step of one token after the other layer's, each in its own state, in place: every byte is read and written."""

    name, kernels = "recurrence", ("kda",)

    @staticmethod
    def needs(config: Config, size: int) -> int:
        return 2 * max(size, Recurrence._nbytes(config))

    @staticmethod
    def _nbytes(config: Config) -> int:
        return 4 * config.kda.num_heads * config.kda.head_dim**2

    def build(self) -> None:
        config, size = self.config, self.size
        heads, dim = config.kda.num_heads, config.kda.head_dim
        count = max(size // self._nbytes(config), 1)
        raw, other = self.memory.take(count * self._nbytes(config)), self.memory.take(count * self._nbytes(config))
        states = raw.view(np.float32).reshape(count, heads, dim, dim)
        states[:] = values((dim, dim))
        q, k, v = (values((1, heads, dim), seed) for seed in range(3))
        _core.l2_heads(k.reshape(1, -1), k.reshape(1, -1), heads, 1e-6, None)
        chance = np.random.default_rng(3)
        alpha = chance.uniform(0.9, 1.0, (1, heads, dim)).astype(np.float32)
        beta = chance.uniform(0.1, 0.9, (1, heads)).astype(np.float32)
        o, first = np.empty_like(q), values((heads, dim, dim), 4)

        def run() -> Work:
            for state in states:
                _core.kda(o, state, state, q, k, v, alpha, beta)
            return Work(nbytes=2 * raw.size, stored=2 * raw.size)

        def digest() -> int:
            after = np.empty_like(first)
            _core.kda(o, after, first, q, k, v, alpha, beta)
            return checksum(o, after)

        def copy() -> Work:
            _bench.copy(other, raw)
            return Work(nbytes=2 * raw.size, stored=2 * raw.size)

        self.contenders += [Contender("copy", 0, copy, per_isa=False), Contender("kda", 1, run, digest)]


class Attention(Group):
    """Absorbed attention of one token over a long context, another layer's latents in every run."""

    name, kernels = "attention", ("attention",)

    @staticmethod
    def needs(config: Config, size: int) -> int:
        return max(size, Attention._nbytes(config, size)) + 4 * POSITIONS * config.mla.num_heads

    @staticmethod
    def _positions(config: Config, size: int) -> int:
        """As many as fit, in whole blocks."""
        each = 4 * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim)
        return max(min(POSITIONS, size // each // BLOCK * BLOCK), BLOCK)

    @staticmethod
    def _nbytes(config: Config, size: int) -> int:
        return 4 * Attention._positions(config, size) * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim)

    def build(self) -> None:
        config, size = self.config, self.size
        mla = config.mla
        heads, c, width = mla.num_heads, mla.kv_lora_rank, mla.kv_lora_rank + mla.qk_rope_head_dim
        self.positions = positions = self._positions(config, size)
        count = max(size // self._nbytes(config, size), 1)
        latents = self.memory.take(count * self._nbytes(config, size)).view(np.float32).reshape(count, positions, width)
        latents[:] = values((positions, width))
        start = latents.__array_interface__["data"][0]
        step = 4 * BLOCK * width
        blocks = [np.arange(positions // BLOCK, dtype=np.int64) * step + start + 4 * i * positions * width for i in range(count)]
        scale = _core.inverse_root(mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        q, o = values((1, heads, width)), np.empty((1, heads, c), np.float32)
        products = positions * heads * (width + c)
        turns = Cycle(count, FEW_TOKENS * count)  # one at a time

        def run() -> Work:
            for i in turns.take():
                _core.attend(o, q, blocks[i], positions - 1, scale)
            return Work(products, latents[0].nbytes, latents[0].nbytes)

        def digest() -> int:
            _core.attend(o, q, blocks[0], positions - 1, scale)
            return checksum(o)

        def with_numpy() -> Work:
            for i in numpy_turns.take():
                scores = q[0] @ latents[i].T
                scores *= np.float32(scale)
                scores -= scores.max(axis=1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(axis=1, keepdims=True)
                np.matmul(scores, latents[i, :, :c])
            return Work(products)

        numpy_turns = Cycle(count, FEW_TOKENS * count)
        self.contenders += [peak(), Contender("attention", 1, run, digest)]
        if self.rivals.numpy:
            self.contenders.append(Contender("numpy", 1, with_numpy, per_isa=False, is_rival=True))
