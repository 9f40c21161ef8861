"""The ring against a model that remembers every byte: regions never overlap, and room that is there is found."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lilliput.weights.ring import Ring

SIZE = 40


@given(st.lists(st.one_of(st.integers(1, SIZE), st.none()), max_size=60))
def test_regions_are_apart_contiguous_and_first_in_first_out(steps: list[int | None]) -> None:
    ring, taken = Ring(SIZE), deque()
    for n in steps:
        if n is None:
            if taken:
                taken.popleft()
                ring.give_back()
            continue
        start = ring.take(n)
        used = {i for s, e in taken for i in range(s, e)}
        if start is None:
            newest = taken[-1][1]
            behind = [i for i in range(newest, SIZE) if i not in used]
            begin = [i for i in range(SIZE) if i not in used]
            room_behind = len(behind) if newest > taken[0][0] else taken[0][0] - newest
            room_at_start = begin.index(taken[0][0] - 1) + 1 if newest > taken[0][0] > 0 else 0
            assert n > max(room_behind, room_at_start)
        else:
            assert 0 <= start <= start + n <= SIZE
            assert not used & set(range(start, start + n))
            taken.append((start, start + n))


def test_an_empty_ring_takes_anything_up_to_its_size() -> None:
    ring = Ring(SIZE)
    assert ring.take(SIZE + 1) is None
    for _ in range(3):
        assert ring.take(SIZE) == 0
        assert ring.take(1) is None
        ring.give_back()
