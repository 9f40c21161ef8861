"""What kernels are compared with in `bench kernels`: that it does the work it is timed for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lilliput import _bench, _core

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


@pytest.fixture(params=[1, 3], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    _bench.set_threads(request.param)
    yield request.param
    _bench.set_threads(1)


@pytest.mark.parametrize("size", [1, 255, 256, 4096, 1_000_003])
def test_reading_sees_every_byte(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    before = _bench.read(data)
    for at in {0, size // 2, size - 1}:
        data[at] ^= 1
        assert _bench.read(data) != before
        data[at] ^= 1
    assert _bench.read(data) == before


@pytest.mark.parametrize("size", [1, 63, 64, 4097, 1_000_003])
def test_a_copy_is_a_copy(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    to = np.zeros_like(data)
    _bench.copy(to, data)
    assert np.array_equal(to, data)


def test_the_peak_says_how_much_every_thread_did(threads: int) -> None:
    for isa in _core.isas():
        one, three = _bench.peak(isa, 1000), _bench.peak(isa, 3000)
        assert three == 3 * one
        assert one % (threads * 1000 * 16) == 0
        assert one // (threads * 1000 * 16) >= 6  # chains: fewer could not hide the latency
    with pytest.raises(ValueError, match="`sse9` is not one of this machine's"):
        _bench.peak("sse9", 1)


def test_doubles_over_bf16_rows_are_nearly_exact() -> None:
    chance = np.random.default_rng(0)
    bits = (chance.standard_normal((37, 516)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    x, y = chance.standard_normal(516).astype(np.float32), np.empty(37, np.float32)
    _bench.bf16_doubles(y, x, bits.view(np.uint8).ravel())
    exact = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) @ x.astype(np.float64)
    assert np.array_equal(y, exact.astype(np.float32)) or np.abs(y - exact).max() < 1e-5


def test_doubles_over_mxfp4_rows_are_nearly_exact() -> None:
    chance = np.random.default_rng(1)
    nibbles = chance.integers(0, 16, (29, 96))
    scales = chance.integers(120, 134, (29, 3), np.uint8)
    scales[0] = [0, 255, 127]
    packed = (nibbles[:, 0::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    x, y = chance.standard_normal(96).astype(np.float32), np.empty(29, np.float32)
    _bench.mxfp4_doubles(y, x, packed.ravel(), scales.ravel())
    factors = np.where(scales == 255, 0.0, 2.0 ** (scales.astype(np.float64) - 127))
    weights = np.array(E2M1 + [-v for v in E2M1])[nibbles] * factors.repeat(32, axis=1)
    assert np.abs(y - weights @ x.astype(np.float64)).max() < 1e-4


def test_arguments_are_checked_by_name() -> None:
    f32, u8 = np.zeros(4, np.float32), np.zeros(32, np.uint8)
    with pytest.raises(ValueError, match="w: needed uint8 with 32 elements, found uint8"):
        _bench.bf16_doubles(np.zeros(4, np.float32), f32, u8[:30])
    with pytest.raises(ValueError, match="x: needed a width that is a multiple of 32"):
        _bench.mxfp4_doubles(f32, f32, u8, u8)
    with pytest.raises(ValueError, match="to, from: needed arrays at 16-byte boundaries"):
        _bench.copy(np.zeros(65, np.uint8)[1:33], u8)
    with pytest.raises(ValueError, match="threads: needed 1 to 1024"):
        _bench.set_threads(0)
