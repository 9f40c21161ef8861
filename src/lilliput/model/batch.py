"""The spans of one pass: consecutive new tokens of several sequences, laid end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lilliput.model.ops import Array
from lilliput.model.state import Change, State


class Span:
    """New ids of one sequence, and the positions within them whose logits are asked for (none, the last, all, ...).

    After `Model.forward`: `hidden` [asked, D] (after the final norm), `logits` [asked, V], and `commit(n)`.
    """

    def __init__(self, state: State, ids: Sequence[int], asked: Sequence[int] = ()) -> None:
        if not ids:
            raise ValueError("a span needs at least one token")
        if any(not 0 <= i < len(ids) for i in asked):
            raise ValueError(f"asked positions must lie in 0..{len(ids) - 1}, found {list(asked)}")
        self.state, self.ids, self.asked = state, tuple(ids), tuple(asked)
        self.change: Change
        self.hidden: Array
        self.logits: Array

    def commit(self, n: int | None = None) -> None:
        """Keep the first n tokens (default all); a span that is not committed leaves no trace."""
        self.change.commit(n)


class Batch:
    """Spans with their rows in the pass. Iterating gives (span, slice of rows)."""

    def __init__(self, spans: Sequence[Span]) -> None:
        if len({id(span.state) for span in spans}) != len(spans):
            raise ValueError("two spans of one pass share a state")
        self.spans = tuple(spans)
        self.ids = np.array([i for span in spans for i in span.ids], np.int64)
        self._starts = np.cumsum([0, *(len(span.ids) for span in spans)]).tolist()
        for span in spans:
            span.change = span.state.begin(span.ids)

    def __iter__(self) -> Iterator[tuple[Span, slice]]:
        for span, start in zip(self.spans, self._starts, strict=False):
            yield span, slice(start, start + len(span.ids))

    def asked(self) -> list[int]:
        """Rows of the pass whose results are wanted."""
        return [rows.start + i for span, rows in self for i in span.asked]

    def hand_out(self, hidden: Array, logits: Array) -> None:
        at = 0
        for span in self.spans:
            n = len(span.asked)
            span.hidden, span.logits = hidden[at : at + n], logits[at : at + n]
            at += n
