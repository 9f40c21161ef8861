"""A real memory ceiling for a child process, or the test is skipped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import missing
from fixtures_synth import locked

from lilliput.machine import ceiling as machine
from lilliput.machine.ceiling import Ceiling, NoCeilingError


@contextmanager
def ceiling(nbytes: int) -> Iterator[Ceiling]:
    """May use `nbytes` of memory and no swap. Skips (or fails, in CI) where none can be made."""
    try:
        with machine.ceiling(nbytes) as group:
            yield group
    except NoCeilingError as error:
        missing(str(error))


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Runs that take gigabytes do so one after the other, whichever of pytest's workers has them: two might not fit the machine.

    `folder`: a temporary one of the test.
    """
    with locked(folder.parents[1] / "large.lock"):
        yield


def run_under(group: Ceiling, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `python -m lilliput ...` below the ceiling."""
    return subprocess.run(group.command([sys.executable, "-m", "lilliput", *arguments]), capture_output=True, text=True, check=False)
