"""Pins are spread evenly, and a larger set contains every smaller one."""

from __future__ import annotations

import pytest
from demands import demand
from hypothesis import given
from hypothesis import strategies as st

from lilliput.machine.spread import spread

SIZES = st.lists(st.integers(0, 1000), max_size=80)


@given(SIZES, st.integers(-5, 50_000), st.integers(0, 50_000))
def test_pins_fit_and_grow_into_each_other(sizes: list[int], room: int, more: int) -> None:
    pins, larger = spread(sizes, room), spread(sizes, room + more)
    assert sum(sizes[i] for i in pins) <= max(room, 0)
    assert pins <= larger
    if room < sum(sizes):
        assert room - sum(sizes[i] for i in pins) <= max(sizes, default=0)
    else:
        assert pins == frozenset(range(len(sizes)))


def test_the_order_is_the_one_described() -> None:
    assert [sorted(spread([1] * 8, n)) for n in range(1, 9)] == [
        [0], [0, 4], [0, 2, 4], [0, 2, 4, 6], [0, 1, 2, 4, 6], [0, 1, 2, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6], list(range(8)),
    ]  # fmt: skip


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_along_the_real_tape_the_stream_is_even_to_less_than_the_ring(share: float) -> None:
    sizes = demand().piece_bytes
    pins = spread(sizes, int(share * sum(sizes)))
    pinned = sum(sizes[i] for i in pins)
    assert pinned >= share * sum(sizes) - max(sizes)
    ahead, low, high, gap, longest = 0.0, 0.0, 0.0, 0, 0
    for index, nbytes in enumerate(sizes):
        ahead += nbytes * (index in pins) - nbytes * pinned / sum(sizes)
        low, high = min(low, ahead), max(high, ahead)
        gap = 0 if index in pins else gap + nbytes
        longest = max(longest, gap)
    assert high - low < 100_000_000  # of any stretch of 111 GB; the ring has more than 150 MB
    assert longest <= 2 * sum(sizes) / len(pins) + 2 * 25_200_000
