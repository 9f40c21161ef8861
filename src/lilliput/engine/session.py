"""One sequence: its ids, its state, and the logits that follow its last id."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lilliput.engine import scheduler
from lilliput.engine.source import Source
from lilliput.errors import DoesNotFitError, InputError, LilliputError, Problem, UsageError, shown
from lilliput.machine.output import Stamp
from lilliput.machine.places import expand
from lilliput.model import state_file
from lilliput.model.state import State

if TYPE_CHECKING:
    from lilliput.engine.engine import Engine

Array = npt.NDArray[np.float32]

EMPTY_PROMPT = "the prompt is empty: needed at least one token (K3 puts none in front by itself)"
LOST = "the logits after the last id were lost in an interrupt: append another id, or start the sequence anew"


class Session:
    """Made by `Engine.session`. `ids` are all ids so far; those behind `state.position` have not been through the model yet.

    Threads may share one: its calls, and the steps of `generate`, come one after the other.
    """

    def __init__(self, engine: Engine, state: State | None = None) -> None:
        self.engine = engine
        self.state = state if state is not None else State(engine.config)
        self.ids: list[int] = list(self.state.ids)
        self._logits: Array | None = None
        self._turn = threading.RLock()

    def turn(self) -> threading.RLock:
        """To be held for a pass with its commit, a step of `generate`, a copy, a save: none may meet another half done.

        It comes before the model's turn, never while that is held. Raises UsageError in a child of the process that opened the model.
        """
        self.engine.weights.check_process()
        return self._turn

    def append(self, ids: Iterable[int]) -> None:
        """Add ids to the sequence; they go through the model when logits are next asked for. Raises UsageError for a bad id."""
        self.extend(self.engine.source.check_ids(ids))

    def extend(self, ids: Sequence[int]) -> None:
        """`append` for ids that the model chose itself: they are its own, whatever they mean."""
        if ids:
            with self.turn():
                self.ids.extend(int(i) for i in ids)
                self._logits = None

    def logits(self, *, more: bool = False) -> Array:
        """Logits [V] of whatever follows the last id, read-only; `more` says that others will be asked for next.

        Interrupted, the session keeps the passes that were complete. Raises DoesNotFitError beyond the engine's context, ContentError
        where a weight that was used is damaged.
        """
        logits = self.next_logits(more)
        self.engine.check_content()
        return logits

    def next_logits(self, more: bool) -> Array:
        """`logits` for `generate`, which reports damage at its end."""
        with self.turn():
            return self._next_logits(more)

    def _next_logits(self, more: bool) -> Array:
        if not self.ids:
            raise UsageError(EMPTY_PROMPT)
        self.engine.check_open()
        if len(self.ids) > self.engine.context:
            raise DoesNotFitError(
                f"the session has {len(self.ids):,} tokens, and memory was planned for {self.engine.context:,}: "
                "open the model with a larger context"
            )
        if self._logits is None:
            self.engine.step_back()
            pending = self.ids[self.state.position :]
            work = scheduler.Work(self.state, pending, [len(pending) - 1])
            for _ in scheduler.run(self.engine.model, [work], self.engine.chunk, more=more, note=self._note):
                pass
        if self._logits is None:
            raise LilliputError(LOST)
        return self._logits

    def _note(self, parts: Sequence[scheduler.Done]) -> None:
        for part in parts:
            if len(part.span.logits):
                self._logits = _read_only(part.span.logits[-1])

    def copy(self) -> Session:
        """An independent continuation from the same point."""
        with self.turn():
            other = Session(self.engine, self.state.copy())
            other.ids, other._logits = list(self.ids), self._logits
            return other

    def save(self, path: str | os.PathLike[str], *, was: Stamp | EllipsisType | None = ...) -> None:
        """Write the session to one file, all or nothing. Raises ContentError where a weight that was used is damaged.

        `was`: what `lilliput.machine.output.stamp` said of the file when this session began; a file that is another one by now stays, and
        the LilliputError tells where this session is saved instead.
        """
        place = expand(path, "path")
        with self.turn():
            self.engine.check_content()
            self.state.check_whole()
            pending = self.ids[self.state.position :]
            if self.ids and not pending and self._logits is None:
                raise LilliputError(LOST)
            state_file.save(place, self.state, self.engine.source.identity, pending=pending, logits=self._logits, was=was)

    @staticmethod
    def positions(path: str | os.PathLike[str]) -> int:
        """How many tokens the session saved at `path` holds."""
        return state_file.positions(expand(path, "path"))

    @classmethod
    def load(cls, engine: Engine, path: str | os.PathLike[str]) -> Session:
        """A saved session of the same checkpoint. Raises InputError naming what does not match."""
        if not isinstance(getattr(engine, "source", None), Source):
            raise UsageError(f"engine: needed a lilliput.Engine, found {shown(engine)}")
        saved = state_file.load(expand(path, "path"), engine.config, engine.source.identity)
        try:
            engine.source.check_ids(saved.pending)
        except UsageError as error:
            raise InputError([Problem(path, "pending", "ids of this model", str(error))], state_file.DAMAGED) from None
        if saved.logits is None and saved.state.ids and not saved.pending:
            raise InputError([Problem(path, "logits", "those after the last id, or ids still to come", "neither")], state_file.DAMAGED)
        session = cls(engine, saved.state)
        session.ids.extend(saved.pending)
        session._logits = None if saved.logits is None else _read_only(saved.logits)
        return session


def _read_only(logits: Array) -> Array:
    """Whoever is given them could otherwise change what is saved, and what the next token is chosen from."""
    logits.flags.writeable = False
    return logits
