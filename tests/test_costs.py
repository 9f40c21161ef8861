"""The cost model: its estimates against the specification's own, and its shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilliput.machine.costs import ExpertUse, PassCost, Rates

K3 = ExpertUse(92, 896, 16)
EXPERT = 17_547_264
USES = st.builds(ExpertUse, st.integers(1, 100), st.integers(1, 900), st.just(1)) | st.builds(
    lambda layers, k, more: ExpertUse(layers, k + more, k), st.integers(1, 100), st.integers(1, 32), st.integers(0, 900)
)


def test_one_token_of_the_released_model_needs_1472_experts() -> None:
    assert K3.requests(1) == pytest.approx(92 * 16)
    assert K3.requests(1000) == pytest.approx(92 * 896, rel=0.01)  # a long chunk: nearly all
    assert K3.misses(K3.all, 1) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("gigabytes", "percent"), [(2, 2.6), (4, 5.4), (8, 10.8), (16, 20.8), (24, 29.5), (32, 33.1)])
def test_hits_are_those_measured_on_the_released_trace(gigabytes: int, percent: float) -> None:
    """docs/expert-cache.md; twelve tokens are few, so within 5 points."""
    hits = K3.hits(gigabytes * 1e9 / EXPERT, 1) / K3.requests(1)
    assert 100 * hits == pytest.approx(percent, abs=5)


@given(USES, st.integers(1, 600))
def test_every_further_slot_saves_no_more_than_the_one_before(use: ExpertUse, tokens: int) -> None:
    cached = np.linspace(0, use.all, 50)
    hits = np.array([use.hits(c, tokens) for c in cached])
    gains = np.diff(hits)
    assert (gains >= -1e-9).all()
    assert (np.diff(gains) <= 1e-9 * use.all).all()
    assert (gains <= np.diff(cached) * (1 + 1e-9)).all()  # a byte of cache never saves more than a byte
    assert use.requests(1) == pytest.approx(use.layers * use.top_k)
    assert hits[-1] <= use.all * (1 + 1e-9)


@given(USES, st.integers(1, 20), st.floats(0, 1))
def test_the_least_cache_for_so_many_misses(use: ExpertUse, tokens: int, share: float) -> None:
    wanted = share * use.requests(tokens)
    cached = use.least_cached(wanted, tokens)
    assert use.misses(cached, tokens) <= wanted + 1e-6
    if cached > 0:
        assert use.misses(cached - 1, tokens) >= wanted - 1e-6


@pytest.mark.parametrize(
    ("pinned_gb", "experts_gb", "disk", "seconds"),
    # Section 7 of the kernel notes, bf16 trunk, one token per pass: nothing cached at 8 GB, 61 GB pinned at 64 GB; and the disk waiting for
    # routers with everything pinned, 1.2 to 1.4 times the 8.6 s that the experts' bytes take.
    [(6, 0, 3e9, 43.6), (6, 0, 7e9, 18.7), (61, 0, 3e9, 25.3), (111.2, 0, 3e9, 1.3 * 8.6)],
)
def test_seconds_are_those_computed_in_the_specification(pinned_gb: float, experts_gb: float, disk: float, seconds: float) -> None:
    cost = PassCost(Rates(disk, 38e9, 18e9), 111_150_000_000, EXPERT, K3, 1)
    assert cost.trunk_seconds == pytest.approx(2.9, abs=0.1)
    assert cost.expert_seconds == pytest.approx(1.4, abs=0.1)
    unpinned = max(111.15e9 - pinned_gb * 1e9, 0)
    assert cost.seconds(unpinned, experts_gb * 1e9 / EXPERT) == pytest.approx(seconds, rel=0.05)


def test_arithmetic_bounds_a_pass_from_below() -> None:
    cost = PassCost(Rates(1e15, 38e9, 18e9), 111_150_000_000, EXPERT, K3, 1)
    assert cost.seconds(111e9, 0) == pytest.approx(cost.trunk_seconds + cost.expert_seconds)
    assert PassCost(Rates(1e9, 1e10, 1e10), 10**10, 0, ExpertUse(0, 16, 2), 1).expert_seconds == 0
