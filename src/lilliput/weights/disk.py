"""The one Reader, with the files it reads and errors that say what was being read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lilliput._core import FaultPlan, Reader
from lilliput.errors import LilliputError
from lilliput.weights.pieces import PieceSpec

READER_THREADS = 4  # of 4 MB requests: 16 MB in flight, what an NVMe disk wants


class Disk:
    """Direct reads into arenas. File numbers are the reader's; a file may be added twice without harm."""

    def __init__(self, threads: int = READER_THREADS, faults: FaultPlan | None = None) -> None:
        self.reader = Reader(threads=threads, faults=faults)
        self._numbers: dict[tuple[Path, int], int] = {}
        self._files: dict[int, tuple[Path, int]] = {}

    def add(self, path: Path, size: int) -> int:
        """Open a file that must have `size` bytes; its number. Raises LilliputError when it vanished or was replaced."""
        number = self._numbers.get((path, size))
        if number is None:
            try:
                number = self.reader.add(path, size)
            except OSError as error:
                raise LilliputError(f"{path}: cannot be opened any more: {error.strerror}") from error
            except ValueError as error:
                raise LilliputError(f"{path}: {error}: it was replaced while in use; start again") from error
            self._numbers[path, size], self._files[number] = number, (path, size)
        return number

    def reads(self, files: Sequence[tuple[Path, int]], specs: Sequence[PieceSpec]) -> list[int]:
        """Bytes that reading each piece brings, by the alignment of the file it lies in; files are (path, size)."""
        numbers = [self.add(path, size) for path, size in files]
        extents = [(numbers[s.file], self.extent(numbers[s.file], s.offset, s.nbytes)) for s in specs]
        return [self.delivered(file, extent) for file, extent in extents]

    def extent(self, file: int, offset: int, nbytes: int) -> tuple[int, int]:
        """(first byte, length) of what is really read: widened to the file's alignment."""
        return self.reader.extent(file, offset, nbytes)

    def delivered(self, file: int, extent: tuple[int, int]) -> int:
        """Bytes that reading an extent brings: its length, less what lies behind the end of the file."""
        begin, length = extent
        return min(length, self._files[file][1] - begin)

    def submit(self, file: int, offset: int, nbytes: int, address: int, *, urgent: bool) -> int:
        try:
            return self.reader.submit(file, offset, nbytes, address, urgent)
        except RuntimeError as error:
            raise LilliputError(f"{error}: the model was closed while it was in use") from error

    def wait(self, ticket: int, what: Callable[[], str]) -> float:
        """Seconds waited until `what()` was there. Raises LilliputError naming it, the file, the place and the reason."""
        try:
            return self.reader.wait(ticket)
        except OSError as error:
            raise LilliputError(f"{error.filename}: reading {what()} failed: {error.strerror}; check the disk and start again") from error
        except RuntimeError as error:
            raise LilliputError(f"{error}: the model was closed while it was in use") from error

    def cancel(self, ticket: int) -> None:
        """Stop reading; at return it has stopped. An interrupt between an answer and the note of it leaves nothing to stop."""
        with suppress(ValueError):
            self.reader.cancel(ticket)

    def cancel_all(self, *, urgent: bool) -> None:
        """Stop every read that is urgent, or that is not, also those whose tickets an interrupt has lost."""
        for ticket in self.reader.tickets(urgent):
            self.cancel(ticket)

    def stats(self) -> dict[str, Any]:
        return self.reader.stats()

    def path(self, file: int) -> Path:
        return self._files[file][0]

    def close(self) -> None:
        self.reader.close()
