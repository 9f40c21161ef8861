"""The bits of every kernel, pinned: tests/kernel_digests.txt is written once, and no later work may change a line of it.

A new kernel or shape appends its lines. A line that changes breaks the promise that a session, a saved state or a published
log-likelihood means the same for ever; then the kernel is wrong, not the file.
"""

from __future__ import annotations

from pathlib import Path

import contract_dot as plain
import numpy as np
import pytest
from contract import F

from lilliput import _core

PINNED = (Path(__file__).parent / "kernel_digests.txt").read_text().splitlines()
KERNELS = {
    *("matmul_bf16", "matmul_f32", "matmul_t_bf16", "matmul_t_f32", "k12_piece", "k12_piece_escapes"),
    *("absorb_query", "absorb_value", "mxfp4_matmul", "expert", "expert_unbounded"),
}


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("threads", [1, 3])
def test_every_kernel_gives_the_pinned_bits(isa: str, threads: int) -> None:
    before, chosen = _core.threads(), _core.isa()
    _core.set_threads(threads, 0)
    try:
        lines = _core.selftest(isa)
    finally:
        _core.set_threads(before)
    assert _core.isa() == chosen
    assert lines == PINNED


def test_the_file_has_one_line_per_kernel_and_shape() -> None:
    names = [line.rsplit(" ", 1)[0] for line in PINNED]
    assert len(names) == len(set(names))
    assert {line.split(" ")[0] for line in PINNED} >= KERNELS


def digest(data: bytes) -> str:
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


class Inputs:
    """The self-test's numbers once more, from their description in selftest.h."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    def value(self) -> np.float32:
        b = self.bits()
        x = F((b >> 40) - 2**23) * F(2.0**-22)
        return {0: x * F(64), 1: F(0.0), 2: F(-0.0), 3: x * F(2.0**-127)}.get(b % 128, x)

    def weight(self) -> int:
        b = self.bits()
        sign, mantissa = b >> 63 << 15, b >> 32 & 127
        draw = b >> 8 & 0x3FFF | 0x4000
        trailing_zeros = (draw & -draw).bit_length() - 1
        exponents = {0: 0, 1: 0, 2: 130 + (b >> 8 & 7)}
        return sign | exponents.get(b % 256, 124 - trailing_zeros) << 7 | (mantissa if b % 256 else 0)


@pytest.mark.parametrize(("rows", "columns", "tokens"), [(3, 31, 2), (5, 130, 6), (130, 600, 61)])
def test_a_digest_from_the_contract_alone(rows: int, columns: int, tokens: int) -> None:
    """Inputs, product and digest in Python: the file pins what docs/arithmetic.md says, not just what was once computed."""
    inputs = Inputs(rows * 1000003 + columns * 101 + tokens)
    x = np.array([inputs.value() for _ in range(tokens * columns)], F).reshape(tokens, columns)
    w = np.array([inputs.weight() for _ in range(rows * columns)], "<u2").view(np.uint8)
    y = plain.dot(plain.from_bf16(w, rows, columns), x)
    assert f"matmul_bf16 {rows}x{columns}x{tokens} {digest(y.tobytes())}" in PINNED
    counts = plain.k12_table(w[1::2])
    assert f"k12_piece {rows}x{columns}x{tokens} {digest(plain.k12_encode(w, rows, columns, counts))}" in PINNED
