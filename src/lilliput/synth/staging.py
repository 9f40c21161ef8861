"""Many files at once or none: they are written beside each other under a temporary name and only then take their places."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.durable import allocated, free_bytes, readable, sync, sync_directory

__all__ = ["PARTIAL", "Staging", "allocated", "check_empty", "check_space", "sync", "sync_directory"]

PARTIAL = ".synth-partial"


class Staging:
    """A directory to fill: `path` is where to write, `publish` moves the files into place, leaving early removes everything.

    The directory must be absent or empty (what a killed writer left under `PARTIAL` is removed first), else `UsageError`.
    A locked `PARTIAL` belongs to a writer that is still running: `UsageError` too.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / PARTIAL
        self._created = False
        self._lock = -1
        self._placed: list[Path] = []
        self._done = False

    def __enter__(self) -> Staging:
        check_empty(self.directory)
        self._created = not self.directory.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as e:
            raise UsageError(f"{self.directory}: cannot be written: {e.strerror}; choose another directory") from e
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def _take(self) -> None:
        locked = True
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UsageError(f"{self.directory}: another `lilliput synth` is writing here; wait for it or choose another directory") from e
        except OSError:
            locked = False  # a network file system without locks: a leftover may then belong to a living writer
        for left in self.path.iterdir():
            if not locked:
                raise UsageError(f"{self.path}: left by another `lilliput synth` that may be running; remove it if none is")
            try:
                left.unlink()
            except OSError as e:
                raise UsageError(f"{left}: cannot be removed: {e.strerror}; remove it, or choose another directory") from e

    def publish(self, names: Sequence[str]) -> None:
        """Move the files into place in this order: until the last one is there no reader takes the directory for a checkpoint."""
        for name in names:
            target = self.directory / name
            self._placed.append(target)
            (self.path / name).rename(target)
        self.path.rmdir()
        sync_directory(self.directory)
        self._done = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._lock)
        if self._done:
            return
        for target in self._placed:
            target.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._created:
            with contextlib.suppress(OSError):  # somebody put something beside it: not ours to remove
                self.directory.rmdir()
        if isinstance(error, OSError):
            raise readable(error, self.directory, "what was written has been removed") from error


def check_empty(directory: Path) -> None:
    """`UsageError` unless `directory` is absent or holds nothing but a killed writer's leftovers."""
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise UsageError(f"{directory}: needed a directory that is empty or absent, found a file; choose another name")
    found = sorted(p.name for p in directory.iterdir() if p.name != PARTIAL)
    if found:
        shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise UsageError(f"{directory}: needed an empty or absent directory, found {shown}; choose another or remove them first")


def check_space(directory: Path, needed: int, what: str) -> None:
    """`DoesNotFitError` unless the file system of `directory` (which may not exist yet) has `needed` bytes free."""
    free = free_bytes(directory)
    if free < needed:
        raise DoesNotFitError(
            f"{directory}: {what} needs {needed / 1e9:.2f} GB of free disk, found {free / 1e9:.2f} GB: "
            f"{(needed - free) / 1e9:.2f} GB short; free some, or choose another disk or a smaller shape"
        )
