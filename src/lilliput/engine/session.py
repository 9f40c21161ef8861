"""One sequence: its ids, its state, and the logits that follow its last id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lilliput.engine import scheduler
from lilliput.errors import DoesNotFitError, InputError, LilliputError, Problem, UsageError
from lilliput.machine.output import Stamp
from lilliput.model import state_file
from lilliput.model.state import State

if TYPE_CHECKING:
    from lilliput.engine.engine import Engine

Array = npt.NDArray[np.float32]

EMPTY_PROMPT = "the prompt is empty: needed at least one token (K3 puts none in front by itself)"


class Session:
    """Made by `Engine.session`. `ids` are all ids so far; those behind `state.position` have not been through the model yet."""

    def __init__(self, engine: Engine, state: State | None = None) -> None:
        self.engine = engine
        self.state = state if state is not None else State(engine.config)
        self.ids: list[int] = list(self.state.ids)
        self._logits: Array | None = None

    def append(self, ids: Iterable[int]) -> None:
        """Add ids to the sequence; they go through the model when logits are next asked for. Raises UsageError for a bad id."""
        self.extend(self.engine.source.check_ids(ids))

    def extend(self, ids: Sequence[int]) -> None:
        """`append` for ids that the model chose itself: they are its own, whatever they mean."""
        if ids:
            self.ids.extend(int(i) for i in ids)
            self._logits = None

    def logits(self, *, more: bool = False) -> Array:
        """Logits [V] of whatever follows the last id; `more` says that others will be asked for next.

        Interrupted, the session keeps the passes that were complete. Raises DoesNotFitError beyond the engine's context.
        """
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
            raise LilliputError("the logits after the last id were lost in an interrupt: append another id, or start the sequence anew")
        return self._logits

    def _note(self, parts: Sequence[scheduler.Done]) -> None:
        for part in parts:
            if len(part.span.logits):
                self._logits = part.span.logits[-1]

    def copy(self) -> Session:
        """An independent continuation from the same point."""
        other = Session(self.engine, self.state.copy())
        other.ids, other._logits = list(self.ids), self._logits
        return other

    def save(self, path: str | os.PathLike[str], *, was: Stamp | EllipsisType | None = ...) -> None:
        """Write the session to one file, all or nothing.

        `was`: what `lilliput.machine.output.stamp` said of the file when this session began; a file that is another one by now stays, and
        the LilliputError tells where this session is saved instead.
        """
        self.state.check_whole()
        pending = self.ids[self.state.position :]
        state_file.save(Path(path), self.state, self.engine.source.identity, pending=pending, logits=self._logits, was=was)

    @staticmethod
    def positions(path: str | os.PathLike[str]) -> int:
        """How many tokens the session saved at `path` holds."""
        return state_file.positions(Path(path))

    @classmethod
    def load(cls, engine: Engine, path: str | os.PathLike[str]) -> Session:
        """A saved session of the same checkpoint. Raises InputError naming what does not match."""
        saved = state_file.load(Path(path), engine.config, engine.source.identity)
        try:
            engine.source.check_ids(saved.pending)
        except UsageError as error:
            raise InputError([Problem(path, "pending", "ids of this model", str(error))], state_file.DAMAGED) from None
        if saved.logits is None and saved.state.ids and not saved.pending:
            raise InputError([Problem(path, "logits", "those after the last id, or ids still to come", "neither")], state_file.DAMAGED)
        session = cls(engine, saved.state)
        session.ids.extend(saved.pending)
        session._logits = saved.logits
        return session
