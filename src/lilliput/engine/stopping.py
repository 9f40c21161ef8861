"""Stop strings: text ends exactly before the first of them, wherever token borders fall."""

from __future__ import annotations

from collections.abc import Sequence

from lilliput.errors import UsageError


class StopText:
    """Passes text through and cuts it at the first stop string; holds back any tail that could still become one."""

    def __init__(self, stops: str | Sequence[str]) -> None:
        stops = (stops,) if isinstance(stops, str) else tuple(stops)
        if any(not stop for stop in stops):
            raise UsageError("--stop: needed a text of at least one character, found an empty one")
        for stop in stops:
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
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.hit = True
            return self._take(min(found))
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
