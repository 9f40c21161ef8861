"""Which spans join a pass. This one takes what it is given, a chunk of each sequence per pass, until all are through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lilliput.machine.interrupts import held
from lilliput.model.batch import Span
from lilliput.model.model import Model
from lilliput.model.state import State

CHUNK = 512  # tokens of one sequence per pass; bounds the activations, never changes a bit


@dataclass(frozen=True, slots=True)
class Work:
    """New ids for one sequence, and the positions among them whose logits are asked for."""

    state: State
    ids: Sequence[int]
    asked: Sequence[int]


@dataclass(frozen=True, slots=True)
class Done:
    """A committed part of `work`: its ids from `start` on, with the logits of the asked ones in `span.logits`."""

    work: int
    start: int
    span: Span


def run(
    model: Model, work: Sequence[Work], chunk: int = CHUNK, *, more: bool = False, note: Callable[[list[Done]], None] | None = None
) -> Iterator[list[Done]]:
    """Play passes until every sequence has all its ids, committing each pass before it is yielded.

    `more`: passes will follow the last of these, so it reads ahead. `note`: what the caller must not miss of a pass that is committed. It
    sees what will be yielded, and an interrupt comes before the commit or after it; what is done between two passes may be interrupted.

    An exception or an interrupt during a pass leaves every state as the pass before it left it.
    """
    done = [0] * len(work)
    while any(at < len(w.ids) for at, w in zip(done, work, strict=True)):
        parts = []
        for index, (at, w) in enumerate(zip(done, work, strict=True)):
            end = min(at + chunk, len(w.ids))
            if at < end:
                asked = [i - at for i in w.asked if at <= i < end]
                parts.append(Done(index, at, Span(w.state, w.ids[at:end], asked)))
        last = all(part.start + len(part.span.ids) == len(work[part.work].ids) for part in parts)
        model.forward([part.span for part in parts], more=more or not last)
        with held():
            for part in parts:
                part.span.commit()
                done[part.work] += len(part.span.ids)
            if note is not None:
                note(parts)
        yield parts
