"""A circular buffer of memory regions, given back in the order they were taken."""

from __future__ import annotations

from collections import deque


class Ring:
    """Offsets in [0, size), handed out as contiguous regions. Pure arithmetic: the memory is the caller's."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken: deque[tuple[int, int]] = deque()  # (start, end), oldest first

    def take(self, nbytes: int) -> int | None:
        """The start of a free region of `nbytes` behind the newest one, or None while there is none."""
        if not self._taken:
            start = 0
            limit = self.size
        else:
            oldest, newest = self._taken[0][0], self._taken[-1][1]
            if newest > oldest:  # free: behind the newest up to the end, then the beginning up to the oldest
                start, limit = (newest, self.size) if newest + nbytes <= self.size else (0, oldest)
            else:
                start, limit = newest, oldest
        if start + nbytes > limit:
            return None
        self._taken.append((start, start + nbytes))
        return start

    def give_back(self) -> None:
        """The oldest region is free again."""
        self._taken.popleft()

    def clear(self) -> None:
        self._taken.clear()
