"""Extents of files, read ahead in order by a few threads into a bounded memory, each with something computed from it on arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from lilliput.machine.workers import Workers, result_of
from lilliput.weights.direct import Bytes, DirectFile, memory, room
from lilliput.weights.ring import Ring

T = TypeVar("T")

READERS = 4  # requests in flight: with 4 MB each, what an NVMe drive wants


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of a file (an index), to be read and computed on; `number` is the caller's."""

    file: int
    offset: int
    nbytes: int
    number: int = 0


@dataclass(slots=True)
class Item(Generic[T]):
    """An extent on its way: `result()` waits for (its bytes, what was computed); None for one that is a hole and was not read."""

    extent: Extent
    future: Future[tuple[Bytes, T]] | None
    in_use: bool = True

    def result(self) -> tuple[Bytes, T] | None:
        return result_of(self.future) if self.future else None

    @property
    def ready(self) -> bool:
        return self.future is None or self.future.done()


class Feed(Generic[T]):
    """Reads `extents` ahead, as many as fit in `nbytes` of memory; `compute(extent, bytes)` runs in the readers' threads.

    `next` gives the items in order; an item's bytes are valid until it is given to `release`. A caller may hold several items, as
    long as it releases some before it waits for one that does not fit. A context manager: leaving it ends the threads. For
    use by one thread. `bytes_read` counts what was asked of the files, which holes are not.
    """

    def __init__(self, files: Sequence[DirectFile], extents: Iterator[Extent], nbytes: int, compute: Callable[[Extent, Bytes], T]) -> None:
        self._files, self._extents, self._compute = files, extents, compute
        self._memory = memory(nbytes)
        self._ring = Ring(nbytes)
        self._taken: deque[Item[T]] = deque()  # those that have a region of the ring, oldest first
        self._coming: deque[Item[T]] = deque()
        self._threads = Workers(READERS, "reading")
        self._waiting = next(self._extents, None)
        self.bytes_read = 0

    def __enter__(self) -> Feed[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._threads.close(drop=True)

    @property
    def ready(self) -> bool:
        """`next` would not wait for the disk."""
        self._submit()
        return bool(self._coming) and self._coming[0].ready

    def next(self) -> Item[T]:
        self._submit()
        if not self._coming:
            raise AssertionError("nothing is coming: all was read, or the memory is held by the caller")
        return self._coming.popleft()

    def release(self, item: Item[T]) -> None:
        """The item's bytes are not needed any more."""
        item.in_use = False
        while self._taken and not self._taken[0].in_use:
            self._taken.popleft()
            self._ring.give_back()
        self._submit()

    def _submit(self) -> None:
        while (extent := self._waiting) is not None:
            file = self._files[extent.file]
            if file.is_hole(extent.offset, extent.nbytes):
                item: Item[T] = Item(extent, None)
            else:
                begin = self._ring.take(room(extent.nbytes))
                if begin is None:
                    return
                self.bytes_read += extent.nbytes
                item = Item(extent, self._threads.submit(self._read, extent, begin))
                self._taken.append(item)
            self._coming.append(item)
            self._waiting = next(self._extents, None)

    def _read(self, extent: Extent, begin: int) -> tuple[Bytes, T]:
        buffer = self._memory[begin : begin + room(extent.nbytes)]
        data = self._files[extent.file].read(extent.offset, extent.nbytes, buffer)
        return data, self._compute(extent, data)
