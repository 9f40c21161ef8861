"""Absorbed attention: bits of rule 10, float64, and independence of chunk starts, batch and the number of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from contract import attend as slow_attend
from contract import everywhere, same_bits

from lilliput import _core

F = np.float32


class Cache:
    """Latents of `positions` positions in blocks of 128, as the state keeps them; what lies behind the end is NaN."""

    def __init__(self, positions: int, width: int, seed: int = 0, scale: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        self.latents = random.normal(0, scale, (positions, width)).astype(F)
        self.blocks = []
        for start in range(0, positions, 128):
            block = np.full((128, width), np.nan, F)
            part = self.latents[start : start + 128]
            block[: len(part)] = part
            self.blocks.append(block)

    def addresses(self) -> np.ndarray:
        return np.array([b.ctypes.data for b in self.blocks], np.uint64)


def run(cache: Cache, q: np.ndarray, latent: int, start: int, scale: float = 0.3) -> np.ndarray:
    o = np.full((*q.shape[:2], latent), 5.0, F)
    _core.attend(o, q, cache.addresses(), start, scale)
    return o


def queries(tokens: int, heads: int, width: int, scale: float = 1.0) -> np.ndarray:
    return np.random.default_rng(tokens + heads + width).normal(0, scale, (tokens, heads, width)).astype(F)


@pytest.mark.parametrize(("heads", "latent", "rest"), [(1, 32, 8), (3, 48, 8), (17, 5, 3), (40, 9, 0), (96, 7, 2), (100, 4, 1)])
@pytest.mark.parametrize("start", [0, 126, 254])
def test_bits_of_the_contract(heads: int, latent: int, rest: int, start: int) -> None:
    cache = Cache(start + 4, latent + rest, seed=start)
    q = queries(4, heads, latent + rest)
    (o,) = everywhere(lambda: run(cache, q, latent, start))
    for t in range(4):
        same_bits(o[t], slow_attend(q[t], cache.latents[: start + t + 1], 0.3, latent), f"token {t}")


@pytest.mark.parametrize("scale", [1.0, 12.0])
def test_against_float64(scale: float) -> None:
    """Flat and sharply peaked softmax over several blocks."""
    cache = Cache(500, 72, scale=scale)
    q = queries(3, 12, 72)
    o = run(cache, q, 64, 497)
    for t in range(3):
        lat = cache.latents[: 498 + t].astype(np.float64)
        s = 0.3 * q[t].astype(np.float64) @ lat.T
        p = np.exp(s - s.max(1, keepdims=True))
        exact = (p / p.sum(1, keepdims=True)) @ lat[:, :64]
        np.testing.assert_allclose(o[t], exact, atol=2e-5 * scale * scale)


def test_maximum_that_grows_and_maximum_that_stays() -> None:
    """Blocks whose best score is larger than all before, and smaller, in different heads at once."""
    cache = Cache(400, 3)
    cache.latents[:, 2] = np.arange(400) / 4
    for b, block in enumerate(cache.blocks):
        part = cache.latents[b * 128 : b * 128 + 128]
        block[: len(part)] = part
    q = np.zeros((1, 3, 3), F)
    q[0, :, 2] = [1.0, -1.0, 0.0]
    (o,) = everywhere(lambda: run(cache, q, 2, 399))
    same_bits(o[0], slow_attend(q[0], cache.latents, 0.3, 2))
    np.testing.assert_allclose(o[0, 2], cache.latents[:, :2].mean(0), atol=1e-6)


def test_neither_chunks_nor_batch_nor_spare_blocks_show() -> None:
    cache = Cache(300, 40)
    q = queries(300, 4, 40)
    whole = run(cache, q, 32, 0)
    for begin, end in [(0, 1), (0, 128), (1, 129), (127, 300), (130, 131), (299, 300)]:
        same_bits(run(cache, np.ascontiguousarray(q[begin:end]), 32, begin), whole[begin:end])
    for heads in ([0], [3], [1, 2]):
        same_bits(run(cache, np.ascontiguousarray(q[:, heads]), 32, 0), np.ascontiguousarray(whole[:, heads]))
    short = Cache(300, 40)
    short.blocks = short.blocks[:2]
    same_bits(run(short, np.ascontiguousarray(q[200:250]), 32, 200), whole[200:250])


def test_one_position_gives_its_latents() -> None:
    cache = Cache(1, 24)
    o = run(cache, queries(1, 2, 24), 20, 0)
    same_bits(o[0], np.broadcast_to(cache.latents[0, :20] + F(0.0), (2, 20)))


def test_minus_zero_becomes_zero() -> None:
    cache = Cache(1, 4)
    cache.blocks[0][0] = F(-0.0)
    o = run(cache, queries(1, 1, 4), 4, 0)
    assert not np.signbit(o).any()


def test_an_output_that_underflows_is_a_positive_zero() -> None:
    """A quarter of the smallest negative number rounds to -0; the one + 0 at the end makes it 0."""
    cache = Cache(4, 2)
    cache.blocks[0][:4] = [[-1e-45, 0], [0, 0], [0, 0], [0, 0]]
    o = run(cache, np.zeros((1, 1, 2), F), 2, 3)
    same_bits(o, np.zeros((1, 1, 2), F))


def test_scores_far_apart_stay_finite() -> None:
    cache = Cache(200, 8, scale=1e15)
    o = run(cache, queries(1, 2, 8, scale=1e15), 8, 199)
    assert np.isfinite(o).all()


def test_signed_addresses_are_fine_and_missing_blocks_are_not() -> None:
    cache = Cache(130, 10)
    q = queries(1, 2, 10)
    o, p = np.empty((1, 2, 8), F), np.empty((1, 2, 8), F)
    _core.attend(o, q, cache.addresses(), 129, 0.3)
    _core.attend(p, q, cache.addresses().astype(np.int64), 129, 0.3)
    same_bits(o, p)
    with pytest.raises(ValueError, match=r"^blocks: needed 2 addresses, found 1"):
        _core.attend(o, q, cache.addresses()[:1], 129, 0.3)
    with pytest.raises(ValueError, match=r"^blocks: needed the address of block 1, found 0"):
        _core.attend(o, q, np.array([cache.addresses()[0], 0], np.uint64), 129, 0.3)
    with pytest.raises(ValueError, match=r"^o: needed"):
        _core.attend(np.empty((1, 2, 11), F), q, cache.addresses(), 129, 0.3)
    with pytest.raises(ValueError, match=r"^blocks: needed uint64"):
        _core.attend(o, q, cache.addresses().astype(np.float64), 129, 0.3)
    with pytest.raises(ValueError, match=r"^start: needed"):  # start + tokens would wrap around
        _core.attend(o, q, cache.addresses(), 2**64 - 100, 0.3)


def test_no_heads_are_no_work() -> None:
    _core.attend(np.empty((3, 0, 8), F), np.empty((3, 0, 10), F), Cache(3, 10).addresses(), 0, 0.3)
