"""The end of a run: whatever brought it about, every output is saved, whatever became of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lilliput.cli.main import exit_code_of, say
from lilliput.machine import interrupts


class Ending:
    """Collects what went wrong in the steps of a run, the work itself being the first."""

    def __init__(self) -> None:
        self.causes: list[BaseException] = []

    @property
    def failed(self) -> bool:
        """Did anything fail? A signal is no failure."""
        return any(isinstance(cause, Exception) for cause in self.causes)

    def attempt(self, step: Callable[[], object], *, whole: bool = False) -> None:
        """Take a step. A signal breaks it off, as it may wait for ever (for who reads a pipe); with `whole` it is finished all the same."""
        self.causes += interrupts.take()
        try:
            if whole:
                step()
            else:
                with interrupts.released():
                    step()
        except BaseException as cause:  # reported by `exit_code`, once all is saved
            self.causes.append(cause)

    def exit_code(self) -> int:
        """That of the signal that came, if any. Raises the first failure, once it has told the others."""
        failures = [cause for cause in self.causes if isinstance(cause, Exception)]
        for other in failures[1:]:
            say(str(other), 1)
        if failures:
            raise failures[0]
        return exit_code_of(self.causes[0] if self.causes else None)


@contextmanager
def ending() -> Iterator[Ending]:
    """Between the steps of the block a signal waits, so that none is left out."""
    end = Ending()
    with interrupts.held():
        yield end
        end.causes += interrupts.take()
