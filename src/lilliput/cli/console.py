"""Everything the terminal shows besides the result: progress, notes, the closing line. All of it on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from lilliput.engine.engine import Engine
from lilliput.machine.output import replacing

SLOW_PASS = 1.0  # seconds after which a pass shows its progress
REFRESH = 0.1  # seconds between two pictures of a bar
# Make room for the bar and the empty line that rich ends it with, as at the bottom of a screen there is none; keep the cursor; go there.
BELOW = "\x1bD\x1bD\x1b[2A\x1b7\r\n"
BACK = "\x1b8"  # to where the cursor was kept


class Terminal:
    """stderr, as quiet or as talkative as asked for. `NO_COLOR` and pipes are respected by rich."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
        self.quiet, self.verbose = quiet, verbose
        self._shared = _one_terminal()
        self._midline = False  # text was the last on stdout, and has not ended its line

    def text(self, piece: str) -> None:
        """A piece of the result, to stdout as it comes. Raises OSError where stdout takes no more."""
        sys.stdout.write(piece)
        sys.stdout.flush()
        if piece:
            self._midline = not piece.endswith("\n")

    def end_text(self) -> None:
        """The newline behind the text; where a line of ours has ended its line on the same terminal there is one already."""
        if self._midline or not self._shared:
            self.text("\n")

    def begin_line(self) -> None:
        """Leave the text's line where it stands on this terminal; what is in a file or a pipe stays as it is."""
        if self._shared and self._midline:
            self._midline = False
            with suppress(OSError):
                self.console.print()

    @contextmanager
    def below_text(self) -> Iterator[None]:
        """While the block runs, what it draws stands below the text's line; then the text goes on where it was."""
        aside = self._shared and self._midline and not self.console.is_dumb_terminal
        if aside:
            self._control(BELOW)
        try:
            yield
        finally:
            if aside:
                self._control(BACK)

    def _control(self, codes: str) -> None:
        with suppress(OSError):
            self.console.file.write(codes)
            self.console.file.flush()

    def note(self, message: str) -> None:
        if not self.quiet:
            self._say(message)

    def detail(self, message: str) -> None:
        if self.verbose and not self.quiet:
            self._say(message)

    def _say(self, message: str) -> None:
        self.begin_line()
        with suppress(OSError):  # stderr is full or nobody reads it: the result matters more
            self.console.print(message)

    @contextmanager
    def pass_progress(self, engine: Engine) -> Iterator[None]:
        """While the block runs: a bar over the layers of any pass that takes longer than a second."""
        if self.quiet or not self.console.is_terminal:
            yield
            return
        bar = LayerBar(self, engine.config.num_layers)
        watchers = engine.weights.watch.on_layer
        watchers.append(bar.see)
        try:
            yield
        finally:
            watchers.remove(bar.see)
            bar.stop()

    @contextmanager
    def job_progress(self, what: str) -> Iterator[Any]:
        """A bar for work that reports (done, total) in bytes; yields the function to report to."""
        if self.quiet or not self.console.is_terminal:
            yield None
            return
        columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn())
        with Progress(*columns, console=self.console, auto_refresh=False) as bar:  # not by a thread of its own: there may be none
            task, shown = bar.add_task(what), -REFRESH

            def report(done: int, total: int) -> None:
                nonlocal shown
                due = done == total or time.monotonic() - shown >= REFRESH
                bar.update(task, completed=done, total=total, refresh=due)
                shown = time.monotonic() if due else shown

            yield report


class LayerBar:
    """Shows itself only in passes slower than a second, and goes away before text is printed."""

    def __init__(self, terminal: Terminal, layers: int) -> None:
        self._terminal, self._layers = terminal, layers
        self._began = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._shown = ExitStack()

    def see(self, layer: int, _sum: object) -> None:
        if layer == 0:
            self._began = time.monotonic()
        if self._progress is None and time.monotonic() - self._began > SLOW_PASS:
            columns = (TextColumn("layer"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
            self._shown.enter_context(self._terminal.below_text())
            self._progress = self._shown.enter_context(
                Progress(*columns, console=self._terminal.console, transient=True, auto_refresh=False)
            )
            self._task = self._progress.add_task("layers", total=self._layers)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=layer + 1, refresh=True)
        if layer + 1 == self._layers:
            self.stop()

    def stop(self) -> None:
        self._shown.close()
        self._progress = self._task = None


def _one_terminal() -> bool:
    """Do stdout and stderr lead to the same terminal?"""
    try:
        return sys.stdout.isatty() and os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # a stream that is closed, or no file
        return False


def write_json(file: str | None, report: dict[str, Any]) -> None:
    """Write a report to FILE, all or nothing, or to stdout for `-`; nothing for None."""
    if file is None:
        return
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:  # a path with bytes that are no text: shown as messages show it
        encoded = msgspec.json.encode(_as_text(report))
    raw = msgspec.json.format(encoded, indent=1) + b"\n"
    if file == "-":
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    with replacing(Path(file)) as out:
        out.write(raw)


def write_npy(path: Path, shape: tuple[int, int], blocks: Iterable[npt.NDArray[np.float32]]) -> None:
    """Write blocks of rows, one after the other, as one .npy file of this shape, all or nothing."""
    with replacing(path) as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for block in blocks:
            out.write(np.ascontiguousarray(block).data)


def _as_text(value: Any) -> Any:
    """A report whose strings are all valid Unicode: bytes of a path that are not become escapes, as on stderr."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _as_text(item) for key, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, (list, tuple)) else value
