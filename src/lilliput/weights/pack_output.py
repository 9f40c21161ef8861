"""The files that packing writes: the growing tape, a journal of what is in it, and at the end the manifest.

A reader trusts a manifest only, and the manifest comes last. Until then the journal says, one line per piece, each line with a
checksum of its own, what the tape holds; a line is written after its piece. Whoever goes on after a kill or a power cut keeps the
pieces up to the first whose line or bytes fail their checksums, and cuts off the rest.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from lilliput.errors import UsageError
from lilliput.machine import durable
from lilliput.machine.workers import Workers, result_of
from lilliput.weights.direct import Bytes
from lilliput.weights.manifest import (
    ALIGNMENT,
    FORMAT,
    JOURNAL,
    MANIFEST,
    PARTIAL,
    TAPE,
    VERSION,
    Contents,
    Owner,
    Parameters,
    aligned,
    checksum_of,
    manifest_bytes,
)
from lilliput.weights.pack_matrix import stretches

FLUSH_EVERY = 256_000_000  # bytes that may be lost in a power cut (twice), and that the page cache holds for us


class Head(msgspec.Struct, frozen=True):
    """The journal's first line. `changed`: when each shard last changed (ns), since a journal, unlike a tape, may meet other bytes."""

    format: str
    version: int
    owner: Owner
    parameters: Parameters
    changed: tuple[int, ...]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One piece that is in the tape, in its place."""

    kind: str
    nbytes: int
    checksum: str


def journal_head(owner: Owner, parameters: Parameters, shards: Sequence[Path]) -> Head:
    return Head(FORMAT, VERSION, owner, parameters, tuple(path.stat().st_mtime_ns for path in shards))


class Output:
    """The directory being packed into, locked from entering to leaving the context.

    `entries` are the pieces of an earlier run, as its journal has them: `keep` says how many of them are sound. `append` adds
    pieces, `publish` makes it a packed tape. Leaving early keeps everything for the next run. Raises UsageError where another packer is
    at work or nothing can be written, OSError from the disk.
    """

    def __init__(self, directory: Path, head: Head) -> None:
        self.directory = directory
        self.tape = directory / (TAPE + PARTIAL)
        self.parameters = head.parameters
        self._head = _line(msgspec.json.encode(head))
        self.entries: list[Entry] = []
        self.size = 0  # of what the entries say
        self.end = 0  # of the last piece, a multiple of ALIGNMENT
        self._lock = self._data = self._journal = -1
        self._at = 0  # in the journal
        self._flushed = 0
        self._flusher = Workers(1, "flushing")
        self._flushing: Future[None] | None = None

    def __enter__(self) -> Output:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            self._take_lock()
            self._open_files()
        except OSError as error:
            self._close()
            if durable.is_full(error):
                raise
            what = f"{self.directory}: cannot be written: {error.strerror}; choose another directory with `-o`"
            raise UsageError(what) from error
        except BaseException:
            self._close()
            raise
        return self

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{self.directory}: another `lilliput pack` is writing here; wait for it") from error
        except OSError:
            pass  # a network file system without locks

    def _open_files(self) -> None:
        if (self.directory / MANIFEST).exists():
            raise UsageError(f"{self.directory}: another `lilliput pack` has finished here meanwhile; nothing is left to do")
        journal, tape = self.directory / JOURNAL, self.directory / TAPE
        if journal.exists() and not self.tape.exists() and tape.exists():  # killed between the last two renames
            tape.rename(self.tape)
        tape.unlink(missing_ok=True)  # without a manifest it is nobody's
        self._data = os.open(self.tape, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._journal = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        durable.sync_directory(self.directory)
        lines = _read_all(self._journal).splitlines(keepends=True)
        if lines[:1] == [self._head]:
            self.entries = [*_entries(lines[1:])]
        self.size = sum(aligned(entry.nbytes) for entry in self.entries)
        os.ftruncate(self._data, self.size)  # what should be there and is not reads as zeros, and fails its checksum

    def keep(self, count: int) -> None:
        """The first `count` entries are what they say; everything behind them goes."""
        del self.entries[count:]
        self.end = sum(aligned(entry.nbytes) for entry in self.entries)
        text = self._head + b"".join(map(_entry_line, self.entries))
        if os.fstat(self._journal).st_size > len(text):
            os.ftruncate(self._journal, len(text) if self.entries else 0)
        if not self.entries:
            durable.write_fully(self._journal, memoryview(self._head), 0)
        self._at = len(text)
        # What is cut off must be gone, not overwritten: zero blocks are not written but left as holes.
        os.ftruncate(self._data, self.end)
        self._flushed = self.end

    def append(self, kind: str, data: Bytes | None, nbytes: int, checksum: str) -> Entry:
        """One more piece; `data` is None for one of zeros."""
        if data is not None:
            self._write(data)
        self.end += aligned(nbytes)
        entry = Entry(kind, nbytes, checksum)
        line = _entry_line(entry)
        durable.write_fully(self._journal, memoryview(line), self._at)
        self._at += len(line)
        self.entries.append(entry)
        if self.end - self._flushed > FLUSH_EVERY:
            self._flush()
        return entry

    def _write(self, data: Bytes) -> None:
        """The piece at the end, without its blocks of zeros."""
        whole = len(data) // ALIGNMENT
        blocks = data[: whole * ALIGNMENT].reshape(-1, ALIGNMENT)
        suspects = np.flatnonzero(~blocks[:, :64].any(axis=1))  # blocks of real weights do not begin like that
        holes = suspects[~blocks[suspects].any(axis=1)]
        end = whole + bool(data[whole * ALIGNMENT :].any())
        for first, last in stretches(holes, end):
            part = data[first * ALIGNMENT : last * ALIGNMENT]
            durable.write_fully(self._data, part.data, self.end + first * ALIGNMENT)

    def _flush(self) -> None:
        """Bring what was written to the disk, beside the work; wait for the flush before, so that little is ever under way."""
        if self._flushing:
            result_of(self._flushing)
        self._flushing = self._flusher.submit(_flush, self._data, self._flushed, self.end)
        self._flushed = self.end

    def publish(self, contents: Contents) -> None:
        """Complete: everything to the disk, then the names, the manifest last, and then the journal's end."""
        if self._flushing:
            result_of(self._flushing)
        os.ftruncate(self._data, self.end)
        durable.sync(self._data)
        self.tape.rename(self.directory / TAPE)
        durable.sync_directory(self.directory)
        durable.write_durably(self.directory / MANIFEST, manifest_bytes(contents))
        (self.directory / JOURNAL).unlink()
        durable.sync_directory(self.directory)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        self._flusher.close(drop=False)
        for fd in (self._data, self._journal, self._lock):
            if fd >= 0:
                os.close(fd)


def _flush(fd: int, begin: int, end: int) -> None:
    durable.sync(fd)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, begin, end - begin, os.POSIX_FADV_DONTNEED)  # the user's cache is for what is read again


def _line(text: bytes) -> bytes:
    return text + b" " + checksum_of(text).encode() + b"\n"


def _entry_line(entry: Entry) -> bytes:
    return _line(msgspec.json.encode(entry))


def _entries(lines: Sequence[bytes]) -> Iterator[Entry]:
    """Up to the first line that was not written whole."""
    for line in lines:
        text = line[:-18]
        if _line(text) != line:
            return
        try:
            yield msgspec.json.decode(text, type=Entry)
        except msgspec.MsgspecError:
            return


def _read_all(fd: int) -> bytes:
    parts = []
    at = 0
    while part := os.pread(fd, 1 << 20, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
