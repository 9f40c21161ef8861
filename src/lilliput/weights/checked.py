"""Pieces read back and compared with their checksums, at the speed of the disk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache

import numpy as np

from lilliput import _core
from lilliput.errors import MOST_SHOWN, ContentError
from lilliput.weights.direct import Bytes, DirectFile, room
from lilliput.weights.feed import Extent, Feed
from lilliput.weights.manifest import aligned
from lilliput.weights.packed import Packed, describe
from lilliput.weights.pieces import malformed

MEMORY = 64_000_000  # bytes


def faults(
    file: DirectFile, pieces: Sequence[tuple[int, int, int]], look: Callable[[int, Bytes], str | None] = lambda number, data: None
) -> Generator[str | None, None, None]:
    """What is wrong with each piece, None for a sound one. pieces: (offset, nbytes, checksum), each with zeros up to a multiple of 4096.
    `look` may find something in the bytes of one whose checksum is right."""

    def found(extent: Extent, data: Bytes) -> str | None:
        _, nbytes, checksum = pieces[extent.number]
        fault = _fault(checksum, _core.checksum(data[:nbytes]), bool(data[nbytes:].any()))
        return fault or look(extent.number, data[:nbytes])

    extents = [Extent(0, offset, aligned(nbytes), i) for i, (offset, nbytes, _) in enumerate(pieces)]
    largest = max((room(extent.nbytes) for extent in extents), default=0)
    with Feed([file], iter(extents), max(MEMORY, 2 * largest), found) as feed:
        for number, (_, nbytes, checksum) in enumerate(pieces):
            item = feed.next()
            result = item.result()
            if result:
                yield result[1]
            else:
                yield _fault(checksum, zeros_checksum(nbytes), False) or look(number, np.zeros(nbytes, np.uint8))
            feed.release(item)


def verify(packed: Packed, progress: Callable[[int, int], None] | None = None) -> None:
    """Read every piece; ContentError naming all that are not what was packed. `progress(done, total)` hears bytes, once per piece."""
    total, done = packed.nbytes, 0
    bad = []
    (path,), (size,) = packed.files, packed.sizes
    file = DirectFile(path, size)
    try:
        pieces = [(p.offset, p.nbytes, p.checksum or 0) for p in packed.pieces]
        for number, fault in enumerate(faults(file, pieces, lambda number, data: malformed(packed.pieces[number], data))):
            if fault:
                bad.append(f"{describe(packed, number)}: {fault}")
            done += packed.pieces[number].nbytes
            if progress:
                progress(done, total)
    finally:
        file.close()
    if bad:
        shown = bad[:MOST_SHOWN] + ([f"... and {len(bad) - MOST_SHOWN} more"] if len(bad) > MOST_SHOWN else [])
        hint = f"damaged: {len(bad)} of {len(packed.pieces)} pieces: remove {packed.directory} and run `lilliput pack` again"
        raise ContentError("\n".join([*shown, hint]))


def _fault(needed: int, found: int, spilled: bool) -> str | None:
    if needed != found:
        return f"needed the checksum {needed:016x}, found {found:016x}"
    return "needed zeros behind the piece, found others" if spilled else None


@lru_cache(maxsize=1024)
def zeros_checksum(nbytes: int) -> int:
    return _core.checksum(np.zeros(nbytes, np.uint8))
