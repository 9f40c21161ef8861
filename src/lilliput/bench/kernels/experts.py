"""Whole experts: two products with MXFP4 rows, SiTU, the third product, added with the token's weight."""

from __future__ import annotations

import numpy as np

from lilliput import _bench, _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.dense import dense_rivals
from lilliput.bench.kernels.group import U8, Cycle, Group, bf16_weights, checksum, peak, reading, values
from lilliput.model.config import Config
from lilliput.model.layout import layout
from lilliput.weights.layout import ExpertSpec

TOKENS = (1, 4, 16, 64, 512)
AT_ONCE = 4  # experts of a layer that are there: half a window


class Experts(Group):
    """Whole experts: two products, SiTU, the third product, added with the token's weight."""

    name, kernels = "experts", ("mxfp4",)

    @staticmethod
    def needs(config: Config, size: int) -> int:
        spec = _expert_spec(config)
        return max(size, spec.nbytes) + 2 * size + 8 * max(TOKENS) * (spec.latent + 2 * spec.width)

    def build(self) -> None:
        self._spec = spec = _expert_spec(self.config)
        count = max(self.size // spec.nbytes, 1)
        packed = self.memory.take(count * spec.nbytes)
        self._parts = [self._fill(packed[i * spec.nbytes : (i + 1) * spec.nbytes]) for i in range(count)]
        self.contenders += [reading(packed), peak(), *(self._contender(tokens) for tokens in TOKENS), self._doubles()]
        bf16 = self.memory.take(self.size if self.rivals.torch is not None else 1)
        bf16_weights(bf16)
        self.contenders += dense_rivals(self.memory, self.rivals, bf16, spec.latent, self.size, TOKENS)

    def _fill(self, expert: U8) -> list[U8]:
        chance, parts, at = np.random.default_rng(2), [], 0
        for number, nbytes in enumerate(self._spec.part_bytes):
            part = expert[at : at + nbytes]
            part[:] = chance.integers(118, 126, nbytes, np.uint8) if number % 2 else chance.integers(0, 256, nbytes, np.uint8)
            parts.append(part)
            at += nbytes
        return parts

    def _contender(self, tokens: int) -> Contender:
        spec, parts = self._spec, self._parts
        x, y = values((tokens, spec.latent)), np.zeros((tokens, spec.latent), np.float32)
        rows, weight = np.arange(tokens, dtype=np.int32), np.full(tokens, 1 / 16, np.float32)
        batches = [
            [(rows, weight, _core.Expert(p, spec.width, spec.latent)) for p in parts[i : i + AT_ONCE]]
            for i in range(0, len(parts), AT_ONCE)
        ]
        turns = Cycle(len(batches), tokens)
        beta, linear = self.config.situ_beta, self.config.situ_linear_beta

        def apply(i: int) -> int:
            _core.experts(y, x, batches[i], beta, linear)
            return len(batches[i])

        def run() -> Work:
            count = sum(apply(i) for i in turns.take())
            return Work(count * spec.parameters * tokens, count * spec.nbytes, count * spec.nbytes)

        def digest() -> int:
            y.fill(0)
            for i in turns.first():
                apply(i)
            return checksum(y)

        return Contender("mxfp4", tokens, run, digest)

    def _doubles(self) -> Contender:
        spec = self._spec
        inputs = [values((spec.latent,)), values((spec.width,)), values((spec.latent,))]
        outputs = [np.empty(rows, np.float32) for rows in (spec.width, spec.latent, spec.width)]

        def run() -> Work:
            for parts in self._parts:
                for m in range(3):
                    _bench.mxfp4_doubles(outputs[m], inputs[m], parts[2 * m], parts[2 * m + 1])
            return Work(len(self._parts) * spec.parameters)

        return Contender("doubles", 0, run, per_isa=False)

    def close(self) -> None:
        super().close()
        self._parts.clear()


def _expert_spec(config: Config) -> ExpertSpec:
    spec = layout(config).experts
    assert spec is not None
    return spec
