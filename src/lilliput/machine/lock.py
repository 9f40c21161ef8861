"""One engine at a time per user and machine: two engines that each believe the free memory is theirs would both be wrong.

The lock is the kernel's (`flock`) on a small file that also says who holds it. It ends with the process, however that ends, so
a killed engine leaves no stale lock; what remains of the file means nothing. The file is never deleted: a second engine could
otherwise lock the deleted file while a third locks its successor.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shlex
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import msgspec

from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.places import cache_directory

RUNNING = "another engine is running"  # how the refusal begins
LONGEST_COMMAND = 200  # characters


class Holder(msgspec.Struct):
    """Who holds a lock."""

    pid: int
    command: str  # as typed in a shell
    since: str  # ISO 8601 with the offset of local time, whole seconds

    def __str__(self) -> str:
        return f"process {self.pid} (`{self.command}`), since {self.since}"


@dataclass
class EngineLock:
    """Held from `acquire` to `release`, or as a context. Not inherited by programs that the process starts."""

    path: Path
    _descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> EngineLock:
        """Take the lock; nothing happens if it is held already. Raises DoesNotFitError naming the holder if another engine has it
        (in this process too), UsageError if the file cannot be made or locked."""
        if self.held:
            return self
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"{self.path}: the lock file cannot be made: {error.strerror}; set LILLIPUT_CACHE to a directory that can be written"
            ) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # in a pipe nobody could leave his name
            os.close(descriptor)
            raise UsageError(f"{self.path}: the lock file cannot be made: something that is no file is there; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise DoesNotFitError(
                f"{RUNNING}: {holder or 'a process that has not given its name yet'}; "
                f"two would overrun the memory together: wait for it, or end it (lock: {self.path})"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise UsageError(
                f"{self.path}: cannot be locked: {error.strerror}; set LILLIPUT_CACHE to a directory on a local disk"
            ) from error
        self._descriptor = descriptor
        with suppress(OSError):  # on a full disk the lock holds without a name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(_ourselves()), 0)
        return self

    def release(self) -> None:
        """Give the lock back. Safe to call twice."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)  # the kernel unlocks
            self._descriptor = None

    def __enter__(self) -> EngineLock:
        return self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()


def engine_lock(directory: Path | None = None) -> EngineLock:
    """The lock of this user on this machine, not yet taken. The file is named after the machine: homes may be shared over a network."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", platform.node()) or "machine"
    return EngineLock((directory or cache_directory()) / f"engine-{name}.lock")


def _ourselves() -> Holder:
    arguments = shlex.join(["lilliput", *sys.argv[1:]] if Path(sys.argv[0]).name in ("__main__.py", "lilliput") else sys.argv)
    if len(arguments) > LONGEST_COMMAND:  # a prompt, most likely
        arguments = arguments[:LONGEST_COMMAND] + "..."
    return Holder(os.getpid(), arguments, datetime.now(UTC).astimezone().isoformat(sep=" ", timespec="seconds"))


def _holder(descriptor: int) -> Holder | None:
    """What the file says; None while the holder is between locking and writing."""
    try:
        return msgspec.json.decode(os.pread(descriptor, 1 << 16, 0), type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
