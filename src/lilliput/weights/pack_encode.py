"""One piece from bf16 rows to what is stored, proved by decoding it again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lilliput import _core
from lilliput.errors import ContentError
from lilliput.weights.direct import Bytes, memory, room
from lilliput.weights.manifest import checksum_of
from lilliput.weights.pack_matrix import Storage


@dataclass(slots=True)
class Encoded:
    """A piece as stored. `data` is None for one of zeros only; `buffer` is what to give back when it has been written."""

    kind: str
    data: Bytes | None
    nbytes: int
    checksum: str
    buffer: Bytes | None = None


class Encoder:
    """Encodes on any number of threads, into buffers that are used again: fresh memory costs as much as encoding."""

    def __init__(self, usual: int) -> None:
        """`usual`: bytes that nearly every piece fits in; a larger one gets memory of its own."""
        self._usual = room(usual)
        self._free: deque[Bytes] = deque()

    def encode(self, rows_of_bf16: Bytes | None, rows: int, columns: int, how: Storage, name: str) -> Encoded:
        """One piece; `rows_of_bf16` is None for zeros. Raises ContentError if it does not decode to what it was made from."""
        if rows_of_bf16 is None:
            return (_with_table if any(how.table) else _nothing)(rows, columns, how)
        if how.kind == "bf16":
            return Encoded("bf16", rows_of_bf16, len(rows_of_bf16), checksum_of(rows_of_bf16))
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = memory(self._usual)
        table = np.frombuffer(how.table, np.uint8)
        nbytes = _core.k12_encode_into(buffer, rows_of_bf16, rows, columns, table)
        if nbytes > len(buffer):
            self.give_back(buffer)
            buffer = memory(room(nbytes))
            _core.k12_encode_into(buffer, rows_of_bf16, rows, columns, table)
        data = buffer[:nbytes]
        _prove(data, rows_of_bf16, rows, columns, name)
        return Encoded("k12", data, nbytes, checksum_of(data), buffer)

    def give_back(self, buffer: Bytes | None) -> None:
        if buffer is not None and len(buffer) == self._usual:
            self._free.append(buffer)


def _prove(data: Bytes, rows_of_bf16: Bytes, rows: int, columns: int, name: str) -> None:
    if not _core.k12_matches(data, rows_of_bf16, rows, columns):
        raise ContentError(f"{name}: a packed piece did not decode to what it was made from: the memory or the processor is faulty")


@lru_cache(maxsize=1024)
def _nothing(rows: int, columns: int, how: Storage) -> Encoded:
    """A piece of zeros whose stored bytes are zeros too."""
    encoded = _zeros(rows, columns, how)
    encoded.data = None
    return encoded


@lru_cache(maxsize=2)
def _with_table(rows: int, columns: int, how: Storage) -> Encoded:
    """A piece of zeros with the table of a matrix that is not all zeros: kept for the next piece of the same."""
    return _zeros(rows, columns, how)


def _zeros(rows: int, columns: int, how: Storage) -> Encoded:
    zeros = np.zeros(2 * rows * columns, np.uint8)
    if how.kind == "bf16":
        return Encoded("bf16", None, len(zeros), checksum_of(zeros))
    data = _core.k12_encode(zeros, rows, columns, np.frombuffer(how.table, np.uint8))
    _prove(data, zeros, rows, columns, "zeros")
    return Encoded("k12", data, len(data), checksum_of(data))
