"""The transposed product: kv_b's key rows into the queries of every head, column by column."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lilliput import _core
from lilliput.bench.kernels.contest import Contender, Work
from lilliput.bench.kernels.group import F32, U8, Group, bf16_weights, checksum, peak, reading, values
from lilliput.model.config import Config
from lilliput.weights.tape import padded

TOKENS = (1, 4)
BLOCK_COLUMNS = 128  # packed columns are padded to whole blocks


class KvB(Group):
    """The transposed product: kv_b's key rows into the queries of every head, column by column; one matrix per layer after the other."""

    name, kernels = "kv_b", ("transposed", "transposed-k12")

    @staticmethod
    def needs(config: Config, size: int) -> int:
        columns = config.mla.kv_lora_rank
        packed = 0.8 * padded(columns, BLOCK_COLUMNS) / columns
        return int((2 + packed) * max(size, KvB._nbytes(config)))

    @staticmethod
    def _nbytes(config: Config) -> int:
        mla = config.mla
        return 2 * mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim) * mla.kv_lora_rank

    def build(self) -> None:
        mla, nbytes = self.config.mla, self._nbytes(self.config)
        count, rows = max(self.size // nbytes, 1), mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        bf16 = self.memory.take(count * nbytes)
        bf16_weights(bf16)
        matrices = {"bf16": [bf16[i * nbytes : (i + 1) * nbytes] for i in range(count)]}
        if "transposed-k12" in self.wanted:
            matrices["k12"] = self._pack(matrices["bf16"], rows)
        self.contenders += [reading(bf16), peak()]
        for tokens in TOKENS:
            for kernel, kind, stored in (("transposed", "bf16", 2.0), ("transposed-k12", "k12", 1.5)):
                if kernel in self.wanted:
                    self.contenders.append(self._contender(kernel, kind, stored, matrices[kind], tokens))
        if self.rivals.numpy:
            keys = self.memory.take(4 * count * mla.num_heads * mla.qk_nope_head_dim * mla.kv_lora_rank).view(np.float32)
            self.contenders += [self._numpy(keys.reshape(count, mla.num_heads, -1, mla.kv_lora_rank), tokens) for tokens in TOKENS]

    def _pack(self, matrices: list[U8], rows: int) -> list[U8]:
        counts = np.zeros(256, np.int64)
        _core.k12_histogram(counts, matrices[0])
        table = np.frombuffer(_core.k12_table(counts), np.uint8)
        columns, packed = self.config.mla.kv_lora_rank, []
        for w in matrices:
            to = self.memory.take(_core.k12_size(w, rows, columns, table))
            _core.k12_encode_into(to, w, rows, columns, table)
            packed.append(to)
        return packed

    def _contender(self, kernel: str, kind: str, stored: float, matrices: list[U8], tokens: int) -> Contender:
        mla = self.config.mla
        heads, n, r, c = mla.num_heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.kv_lora_rank
        q, to = values((tokens, heads, n + r)), np.empty((tokens, heads, c + r), np.float32)
        weights = len(matrices) * heads * n * c
        absorb: Callable[[U8], Any] = partial(_absorb, to, q, kind, n, mla.v_head_dim)

        def run() -> Work:
            for w in matrices:
                absorb(w)
            return Work(weights * tokens, 2.0 * weights, stored * weights)

        def digest() -> int:
            each = []
            for w in matrices:
                absorb(w)
                each.append(checksum(to))
            return checksum(np.array(each, np.uint64))

        return Contender(kernel, tokens, run, digest, outputs="queries")

    def _numpy(self, keys: F32, tokens: int) -> Contender:
        _, heads, n, c = keys.shape
        keys[:] = values((n, c))
        q, to = values((heads, tokens, n)), np.empty((heads, tokens, c), np.float32)

        def run() -> Work:
            for w in keys:
                np.matmul(q, w, out=to)
            return Work(keys.size * tokens)

        return Contender("numpy", tokens, run, per_isa=False, is_rival=True)


def _absorb(to: F32, q: F32, kind: str, n: int, v: int, w: U8) -> None:
    _core.absorb_query(to, q, w, kind, n, v)
