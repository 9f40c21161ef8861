"""Pieces read back and compared with their checksums, at the speed of the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from lilliput import _core
from lilliput.weights.direct import Bytes, DirectFile, room
from lilliput.weights.feed import Extent, Feed
from lilliput.weights.manifest import aligned

MEMORY = 64_000_000  # bytes


def faults(file: DirectFile, pieces: Sequence[tuple[int, int, int]]) -> Iterator[str | None]:
    """What is wrong with each piece, None for a sound one. pieces: (offset, nbytes, checksum), each with zeros up to a multiple of 4096."""

    def found(extent: Extent, data: Bytes) -> str | None:
        _, nbytes, checksum = pieces[extent.number]
        return _fault(checksum, _core.checksum(data[:nbytes]), bool(data[nbytes:].any()))

    extents = [Extent(0, offset, aligned(nbytes), i) for i, (offset, nbytes, _) in enumerate(pieces)]
    largest = max((room(extent.nbytes) for extent in extents), default=0)
    with Feed([file], iter(extents), max(MEMORY, 2 * largest), found) as feed:
        for _, nbytes, checksum in pieces:
            item = feed.next()
            result = item.result()
            yield result[1] if result else _fault(checksum, zeros_checksum(nbytes), False)
            feed.release(item)


def _fault(needed: int, found: int, spilled: bool) -> str | None:
    if needed != found:
        return f"needed the checksum {needed:016x}, found {found:016x}"
    return "needed zeros behind the piece, found others" if spilled else None


@lru_cache(maxsize=1024)
def zeros_checksum(nbytes: int) -> int:
    return _core.checksum(np.zeros(nbytes, np.uint8))
