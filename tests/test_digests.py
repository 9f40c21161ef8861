"""The bits of every kernel, pinned: tests/kernel_digests.txt is written once, and no later work may change a line of it.

A new kernel or shape appends its lines. A line that changes breaks the promise that a session, a saved state or a published
log-likelihood means the same for ever; then the kernel is wrong, not the file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lilliput import _core

PINNED = (Path(__file__).parent / "kernel_digests.txt").read_text().splitlines()
KERNELS = """
matmul_bf16 matmul_f32 k12_piece k12_piece_escapes matmul_t_bf16 matmul_t_f32 absorb_query absorb_value mxfp4_matmul expert expert_unbounded
""".split()


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("threads", [1, 3])
def test_every_kernel_gives_the_pinned_bits(isa: str, threads: int) -> None:
    before, chosen = _core.threads(), _core.isa()
    _core.set_threads(threads)
    try:
        lines = _core.selftest(isa)
    finally:
        _core.set_threads(before)
    assert _core.isa() == chosen
    assert lines == PINNED


def test_the_file_has_one_line_per_kernel_and_shape() -> None:
    names = [line.rsplit(" ", 1)[0] for line in PINNED]
    assert len(names) == len(set(names))
    assert set(KERNELS) <= {line.split(" ")[0] for line in PINNED}


def test_a_digest_is_of_the_right_bytes() -> None:
    """One line by hand, so that the file cannot be a file of digests of nothing: the piece of a single zero weight's relative."""
    digests = {line.rsplit(" ", 1)[1] for line in PINNED}
    assert len(digests) > 0.9 * len(PINNED)
    assert f"{0xCBF29CE484222325:016x}" not in digests  # FNV-1a of no bytes at all
