"""Stop strings: text ends exactly before the one that is complete first, wherever token borders fall.

Complete first, not begun first: with the stops "b" and "abaa", the text "aba" ends before its "b". Waiting for what could
still become "abaa" would cost tokens after a stop that was met, and would make the end depend on where tokens end.
"""

from __future__ import annotations

from collections.abc import Sequence

from lilliput.errors import UsageError


class StopText:
    """Passes text through and cuts it at the first complete stop string; holds back any tail that could still become one."""

    def __init__(self, stops: str | Sequence[str]) -> None:
        stops = (stops,) if isinstance(stops, str) else stops
        if not isinstance(stops, Sequence) or isinstance(stops, bytes):
            raise UsageError(f"--stop: needed a text or a list of texts, found {stops!r}")
        for stop in stops:
            if not isinstance(stop, str):
                raise UsageError(f"--stop: needed a text, found {stop!r}")
            if not stop:
                raise UsageError("--stop: needed a text of at least one character, found an empty one")
            try:
                stop.encode()
            except UnicodeEncodeError:
                raise UsageError(f"--stop: needed valid Unicode, found {stop!a}: it could never be met") from None
        self._stops = tuple(stops)
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The part of the text so far that is certain and was not given out yet."""
        if self.hit:
            return ""
        self._held += text
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.hit = True
            return self._take(min(found)[1])
        return self._take(len(self._held) - self._undecided())

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        return "" if self.hit else self._take(len(self._held))

    def _take(self, n: int) -> str:
        out, self._held = self._held[:n], self._held[n:]
        return out

    def _undecided(self) -> int:
        """Length of the longest tail that is the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-n:]) for stop in self._stops):
                return n
        return 0
