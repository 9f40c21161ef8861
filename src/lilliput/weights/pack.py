"""Packing: a checkpoint's tape, once through, into K12. docs/packed-tape.md tells the why of all this.

The matrices are read in the tape's order, each into memory as a whole where it fits (then once, else twice): the histogram that its
table comes from is made as the pieces arrive. Then its pieces are encoded, decoded again and compared, on all cores, and written in
order. Reading, encoding and writing overlap across matrices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lilliput.errors import ContentError, DoesNotFitError, InputError, UsageError
from lilliput.machine import durable
from lilliput.machine.workers import Workers, result_of
from lilliput.weights.checked import faults
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.direct import Bytes, DirectFile, room
from lilliput.weights.feed import Extent, Feed, Item
from lilliput.weights.layout import Layout
from lilliput.weights.manifest import JOURNAL, MANIFEST, TAPE, Contents, Owner, PackedMatrix, Parameters, aligned, read_manifest
from lilliput.weights.pack_encode import Encoded, Encoder
from lilliput.weights.pack_matrix import Counts, Matrix, Storage, estimate, fits, histogram, storage, tape_matrices
from lilliput.weights.pack_output import Output, journal_head
from lilliput.weights.packed import differences, shards_of
from lilliput.weights.pieces import PIECE_BYTES

MEMORY = 184_000_000  # bytes of shards in memory: a whole matrix of 12288 x 7168, and a piece of the next
PER_PIECE = 256  # bytes of manifest and journal

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Source:
    """What is packed. `config_hash` is the SHA-256 of config.json in hex."""

    directory: Path
    checkpoint: Checkpoint
    config_hash: str
    layout: Layout


def pack(
    source: Source,
    directory: Path,
    *,
    threads: int,
    progress: Progress | None = None,
    memory: int = MEMORY,
    piece_bytes: int = PIECE_BYTES,
    forced: bool = False,
) -> dict[str, Any]:
    """Pack the tape of a checkpoint into `directory`, going on where an earlier run of the same was stopped. Returns counts and bytes.

    `threads` encode; each is one of the core's callers, so the core's own pool is best left at one thread. `memory`: bytes of shards
    kept at a time. `progress(done, total)` hears bytes of bf16 rows, once per piece. `forced`: K12 even where bf16 rows are smaller.
    Nothing is there to trust until all is.

    Raises DoesNotFitError before the start, and when the disk becomes full all the same; UsageError for a directory that holds the
    tape of another checkpoint, lies inside of this one or cannot be written; LilliputError when a shard cannot be read; ContentError
    when a piece does not decode to what it was made from.
    """
    _check_place(directory, source)
    parameters = Parameters(piece_bytes, forced)
    owner = Owner(source.config_hash, source.checkpoint.identity, tuple(shards_of(source.directory, source.checkpoint)))
    if (finished := _finished(directory, source, parameters)) is not None:
        return _summary(directory, finished, resumed=_pieces(finished), bytes_read=0)
    matrices = [*tape_matrices(source.checkpoint, source.layout, piece_bytes)]
    with ExitStack() as stack:
        files = [DirectFile(path, size) for path, size in zip(source.checkpoint.files, source.checkpoint.sizes, strict=True)]
        for file in files:
            stack.callback(file.close)
        if not (directory / JOURNAL).exists():
            _check_space(directory, matrices, files, 0, forced=forced)
        head = journal_head(owner, parameters, source.checkpoint.files)
        try:
            output = stack.enter_context(Output(directory, head))
            total = sum(len(m.extents) for m in matrices)
            kept = _keep_sound(output, min(total, len(output.entries)), matrices, progress)
            _check_space(directory, matrices, files, kept, forced=forced)
            packer = _Packer(matrices, files, output, threads, memory, forced=forced, progress=progress)
            packer.run()
            contents = _contents(owner, parameters, matrices, output)
            output.publish(contents)
        except OSError as error:
            kept_text = "what is written is kept: free some space and run the same command again to go on"
            raise durable.readable(error, directory, kept_text) from error
    return _summary(directory, contents, resumed=kept, bytes_read=packer.bytes_read)


class _Packer:
    """One run over the tape: items come from the feed in order, encoded pieces go to the output in the same order."""

    def __init__(
        self,
        matrices: Sequence[Matrix],
        files: Sequence[DirectFile],
        output: Output,
        threads: int,
        memory: int,
        *,
        forced: bool,
        progress: Progress | None,
    ) -> None:
        largest = max(room(extent.nbytes) for m in matrices for extent in m.extents)
        self._memory = max(memory, 2 * largest)
        self._matrices, self._files, self._output, self._forced, self._progress = matrices, files, output, forced, progress
        self._threads = threads
        self._encoder = Encoder(output.parameters.piece_bytes * 4 // 5)
        self._skip = len(output.entries)
        self._total = sum(m.nbytes for m in matrices)
        self._done = sum(extent.nbytes for extent in _all_extents(matrices)[: self._skip])
        self._feed: Feed[Counts | None]
        self._workers: Workers
        self._pending: deque[tuple[Item[Counts | None], Future[Encoded]]] = deque()
        self.bytes_read = 0

    def run(self) -> None:
        with (
            Feed(self._files, self._extents(), self._memory, _count) as self._feed,
            Workers(self._threads, "encoding") as self._workers,
        ):
            for matrix, skip in self._work():
                self._pack(matrix, skip)
            while self._pending:
                self._write_oldest()
            self.bytes_read = self._feed.bytes_read

    def _work(self) -> Iterator[tuple[Matrix, int]]:
        """The matrices that are not complete yet, and how many of their pieces are there already."""
        before = 0
        for matrix in self._matrices:
            skip = max(0, self._skip - before)
            before += len(matrix.extents)
            if skip < len(matrix.extents):
                yield matrix, skip

    def _extents(self) -> Iterator[Extent]:
        """All that will be read, in order; `number` 1 asks for a histogram."""
        for matrix, skip in self._work():
            yield from (replace(extent, number=1) for extent in matrix.extents)
            if not fits(matrix, self._memory):
                yield from matrix.extents[skip:]

    def _pack(self, matrix: Matrix, skip: int) -> None:
        stays = fits(matrix, self._memory)
        counts = np.zeros(256, np.int64)
        waiting: deque[Item[Counts | None]] = deque()
        for number, extent in enumerate(matrix.extents):
            item = self._next()
            counts += _counts_of(item, extent)
            if stays and number >= skip:
                waiting.append(item)
            else:
                self._feed.release(item)
        how = storage(matrix, counts, forced=self._forced)
        for _, rows in matrix.rows_of[skip:]:
            item = waiting.popleft() if stays else self._next()
            self._pending.append((item, self._workers.submit(self._encode, matrix, rows, how, item)))
            if len(self._pending) > self._threads:
                self._write_oldest()

    def _encode(self, matrix: Matrix, rows: int, how: Storage, item: Item[Counts | None]) -> Encoded:
        result = item.result()
        return self._encoder.encode(result and result[0], rows, matrix.columns, how, matrix.name)

    def _next(self) -> Item[Counts | None]:
        """The next item; while the disk is slow or memory full, what is encoded gets written."""
        while self._pending and not self._feed.ready:
            self._write_oldest()
        return self._feed.next()

    def _write_oldest(self) -> None:
        item, future = self._pending.popleft()
        encoded = result_of(future)
        self._output.append(encoded.kind, encoded.data, encoded.nbytes, encoded.checksum)
        self._encoder.give_back(encoded.buffer)
        self._feed.release(item)
        self._done += item.extent.nbytes
        if self._progress:
            self._progress(self._done, self._total)


def _count(extent: Extent, data: Bytes) -> Counts | None:
    return histogram(data) if extent.number else None


def _counts_of(item: Item[Counts | None], extent: Extent) -> Counts:
    result = item.result()
    if result is None:
        counts = np.zeros(256, np.int64)
        counts[0] = extent.nbytes // 2
        return counts
    assert result[1] is not None
    return result[1]


def _keep_sound(output: Output, count: int, matrices: Sequence[Matrix], progress: Progress | None) -> int:
    """Of an earlier run's first `count` pieces, those up to the first that is damaged are kept; how many."""
    pieces, at = [], 0
    for entry in output.entries[:count]:
        pieces.append((at, entry.nbytes, int(entry.checksum, 16)))
        at += aligned(entry.nbytes)
    sound = 0
    if pieces:
        tape = DirectFile(output.tape, output.size)
        total, done = sum(m.nbytes for m in matrices), 0
        extents = _all_extents(matrices)
        checks = faults(tape, pieces)
        for fault in checks:
            if fault:
                break
            done += extents[sound].nbytes
            sound += 1
            if progress:
                progress(done, total)
        checks.close()
        tape.close()
    output.keep(sound)
    return sound


def _all_extents(matrices: Sequence[Matrix]) -> list[Extent]:
    return [extent for m in matrices for extent in m.extents]


def _contents(owner: Owner, parameters: Parameters, matrices: Sequence[Matrix], output: Output) -> Contents:
    entries = iter(output.entries)
    at = 0
    packed = []
    for m in matrices:
        lines = []
        for first, rows in m.rows_of:
            entry = next(entries)
            lines.append((first, rows, at, entry.nbytes, entry.checksum))
            at += aligned(entry.nbytes)
        packed.append(PackedMatrix(m.name, m.rows, m.columns, entry.kind, tuple(lines)))
    return Contents(owner, parameters, at, tuple(packed))


def _check_place(directory: Path, source: Source) -> None:
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory}: needed a directory, or a name that is free, found a file; choose another with `-o`")
    if directory.resolve().is_relative_to(source.directory.resolve()):
        raise UsageError(f"{directory}: needed a place outside of the checkpoint, which is never written to; choose another with `-o`")


def _finished(directory: Path, source: Source, parameters: Parameters) -> Contents | None:
    """The manifest of the same tape; None where there is none. UsageError for one of another checkpoint."""
    if not (directory / MANIFEST).exists():
        return None
    how = f"remove {directory}, or choose another directory with `-o`"
    try:
        contents = read_manifest(directory)
    except (InputError, ContentError) as error:
        raise UsageError(f"{directory}: holds a packed tape already, but not a sound one: {error}") from error
    if differing := differences(directory, contents.owner, source.directory, source.checkpoint, source.config_hash):
        raise UsageError(f"{directory}: holds the packed tape of another checkpoint ({differing[0]}); {how}")
    if contents.parameters != parameters:
        raise UsageError(f"{directory}: holds a packed tape made with other parameters ({contents.parameters}); {how}")
    if not (directory / TAPE).exists() or (directory / TAPE).stat().st_size != contents.nbytes:
        raise UsageError(f"{directory}: holds the manifest of a packed tape, but {TAPE} is missing or has another size; {how}")
    (directory / JOURNAL).unlink(missing_ok=True)  # of a packer killed in its last moment
    return contents


def _check_space(directory: Path, matrices: Sequence[Matrix], files: Sequence[DirectFile], kept: int, *, forced: bool) -> None:
    """DoesNotFitError unless the pieces from number `kept` on will fit."""
    needed, before = 0, 0
    for m in matrices:
        first = max(0, kept - before)
        before += len(m.extents)
        if first < len(m.extents):
            needed += estimate(m, files, first, forced=forced)
    needed += PER_PIECE * before
    free = durable.free_bytes(directory)
    if free < needed:
        raise DoesNotFitError(
            f"{directory}: the packed tape needs {needed / 1e9:.2f} GB of free disk, found {free / 1e9:.2f} GB: "
            f"{(needed - free) / 1e9:.2f} GB short; free some, or choose another disk with `-o`"
        )


def _pieces(contents: Contents) -> int:
    return sum(len(m.pieces) for m in contents.matrices)


def _summary(directory: Path, contents: Contents, *, resumed: int, bytes_read: int) -> dict[str, Any]:
    nbytes = sum(piece[3] for m in contents.matrices for piece in m.pieces)
    bf16 = sum(2 * m.rows * m.columns for m in contents.matrices)
    return {
        "directory": str(directory),
        "matrices": len(contents.matrices),
        "matrices_bf16": sum(m.kind == "bf16" for m in contents.matrices),
        "pieces": _pieces(contents),
        "pieces_kept": resumed,
        "bytes": nbytes,
        "bytes_bf16": bf16,
        "ratio": nbytes / bf16,
        "bytes_on_disk": durable.allocated(directory / TAPE),
        "bytes_read": bytes_read,
    }
