"""Reproducible numbers: the generator against its published vector, the distributions against other implementations."""

from __future__ import annotations

import statistics

import ml_dtypes
import numpy as np
import pytest

from lilliput.synth import values


def test_generator_gives_the_published_splitmix64_vector() -> None:
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert values.words(1234567, 0, 5).tolist() == expected
    assert values.words(1234567, 3, 2).tolist() == expected[3:]


def splitmix64(state: int, count: int) -> list[int]:
    mask, out = (1 << 64) - 1, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out.append(z ^ (z >> 31))
    return out


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_blocks_join_without_a_seam(key: int) -> None:
    count = values.BLOCK + 3
    expected = b"".join(w.to_bytes(8, "little") for w in splitmix64(key, count))
    assert b"".join(a.tobytes() for a in values.raw_bytes(key, 8 * count - 5)) == expected[:-5]
    table = np.arange(values.LEVELS, dtype=np.uint16)
    assert b"".join(a.tobytes() for a in values.picks(key, table, 4 * count - 3)) == expected[:-6]


def test_streams_differ_by_seed_and_by_name() -> None:
    keys = [values.stream_key(seed, name) for seed in (0, 1, 2**64 - 1) for name in ("a", "b", "a block")]
    assert len(set(keys)) == len(keys)
    assert all(0 <= k < 1 << 64 for k in keys)


def test_normal_table_against_the_standard_library() -> None:
    table = values.standard_normal()
    other = statistics.NormalDist()
    expected = np.array([other.inv_cdf((i + 0.5) / 65536) for i in range(65536)])
    np.testing.assert_allclose(table, expected, rtol=2e-15, atol=1e-18)
    assert (table == -table[::-1]).all()
    assert (np.diff(table) > 0).all()


def test_logarithm() -> None:
    x = np.concatenate([np.geomspace(1e-6, 1, 10001), [0.5, 0.75, 2.0, 1e300]])
    np.testing.assert_allclose(values._log(x), np.log(x), rtol=1e-15, atol=2e-16)


def test_bf16_rounding_against_ml_dtypes() -> None:
    x = np.random.default_rng(1).standard_normal(100_000) * np.logspace(-30, 30, 100_000)
    halves = np.array([1 + k / 256 for k in range(512)])  # exactly between two values, and the values
    for v in (x, -x, halves, -halves, np.array([0.0, -0.0])):
        assert (values.bf16(v) == v.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)).all()


def test_tables_of_integers_and_intervals() -> None:
    counts = np.bincount(values.integers(118, 122), minlength=256)
    assert counts[118:123].sum() == 65536
    assert np.ptp(counts[118:123]) <= 1
    u = values.uniform(-4.0, 1.0)
    assert -4 < u[0] < -3.9999 < 0.9999 < u[-1] < 1
    assert u.mean() == pytest.approx(-1.5)
