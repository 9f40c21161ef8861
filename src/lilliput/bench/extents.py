"""What passes read, and the same bytes read again without arithmetic: by the engine's reader, and by plain `pread`."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput._core import Arena
from lilliput.bench.disk import PIECE, PIECES_AHEAD, open_direct, pread_direct
from lilliput.engine.engine import Engine
from lilliput.machine.workers import Workers, result_of
from lilliput.weights.disk import Disk
from lilliput.weights.experts import Experts
from lilliput.weights.pieces import PieceSpec
from lilliput.weights.ring import Ring
from lilliput.weights.tape import padded

Read = int | tuple[int, int]  # a piece's index, or (layer, expert)
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class Play:
    """Records what an engine's passes read: the pieces that are not pinned, and the experts that were not there.

    `passes` and `nbytes` are of the last `recording`; bytes are the lengths of the data, without margins.
    """

    def __init__(self, engine: Engine, specs: Sequence[PieceSpec]) -> None:
        self._engine, self._specs = engine, specs
        self._layers = [int(found[1]) if (found := LAYER.search(spec.name)) else -1 for spec in specs]
        self._experts: list[dict[int, list[int]]] = []  # of each pass: layer → experts read
        experts = engine.source.layout.experts
        self._expert_bytes = sum(experts.part_bytes) if experts else 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        watchers = self._engine.weights.watch.on_route
        self._experts.clear()
        watchers.append(self._see)
        try:
            yield
        finally:
            watchers.remove(self._see)

    def begin(self) -> None:
        """A pass begins."""
        self._experts.append({})

    def _see(self, layer: int, ids: npt.NDArray[np.int32], _weights: object) -> None:
        experts = self._engine.weights.experts
        assert experts is not None
        self._experts[-1][layer] = [e for e in np.unique(ids).tolist() if experts.resident(layer, e) is None]

    @property
    def passes(self) -> list[list[Read]]:
        """Of each pass, in the order of use: a layer's experts behind its pieces."""
        return [list(self._reads(experts)) for experts in self._experts]

    @property
    def nbytes(self) -> int:
        tape = sum(spec.nbytes for i, spec in enumerate(self._specs) if i not in self._engine.plan.pins)
        experts = sum(len(read) for layers in self._experts for read in layers.values())
        return len(self._experts) * tape + experts * self._expert_bytes

    def _reads(self, experts: dict[int, list[int]]) -> Iterator[Read]:
        left = dict(experts)
        for i, layer in enumerate(self._layers):
            for earlier in [known for known in left if 0 <= known < layer or layer < 0]:
                yield from ((earlier, expert) for expert in left.pop(earlier))
            if i not in self._engine.plan.pins:
                yield i
        for last in left:
            yield from ((last, expert) for expert in left[last])


class PureReading:
    """The engine's reader, with a ring and a window as large as the engine's, and nothing done with what arrives."""

    def __init__(self, engine: Engine, specs: Sequence[PieceSpec], files: Sequence[tuple[Path, int]]) -> None:
        self._specs, self._disk = specs, Disk()
        self._files = [self._disk.add(path, size) for path, size in files]
        align = max(self._disk.reader.alignment(file) for file in self._files)
        self._align = align
        spaces = [self._space(spec) for i, spec in enumerate(specs) if i not in engine.plan.pins]
        self._ring = Ring(max([engine.plan.ring_bytes // align * align, *spaces]))
        self._memory = Arena(max(self._ring.size, align))
        self._experts: Experts | None = None
        source, window = engine.source, max(engine.plan.window_slots, 1)
        if source.layout.experts is not None and source.checkpoint.experts is not None:
            shards = list(zip(source.checkpoint.files, source.checkpoint.sizes, strict=True))
            self._experts = Experts(self._disk, shards, source.checkpoint.experts, source.layout.experts, slots=0, window=window)
        self._window = window
        self._pieces: deque[int] = deque()  # tickets, oldest first

    def _space(self, spec: PieceSpec) -> int:
        return padded(self._disk.extent(self._files[spec.file], spec.offset, spec.nbytes)[1], self._align)

    def run(self, passes: Sequence[Sequence[Read]]) -> tuple[int, float, float]:
        """(bytes that arrived, seconds, CPU seconds of the reader's threads)."""
        before = self._disk.stats()
        start = time.perf_counter()
        landing: deque[tuple[int, int, object]] = deque()
        free = deque(range(self._window))
        for read in (read for one in passes for read in one):
            if isinstance(read, int):
                self._piece(self._specs[read])
                continue
            experts = self._experts
            assert experts is not None
            if not free:
                free.append(self._landed(experts, landing.popleft()))
            landing.append((*read, experts.land(*read, free.popleft())))
        while landing and self._experts is not None:
            self._landed(self._experts, landing.popleft())
        while self._pieces:
            self._disk.wait(self._pieces.popleft(), lambda: "a piece")
            self._ring.give_back()
        seconds, after = time.perf_counter() - start, self._disk.stats()
        return int(after["bytes_read"] - before["bytes_read"]), seconds, after["cpu_s"] - before["cpu_s"]

    def _piece(self, spec: PieceSpec) -> None:
        while (place := self._ring.take(self._space(spec))) is None:
            self._disk.wait(self._pieces.popleft(), lambda: "a piece")
            self._ring.give_back()
        address = self._memory.address + place
        self._pieces.append(self._disk.submit(self._files[spec.file], spec.offset, spec.nbytes, address, urgent=False))

    @staticmethod
    def _landed(experts: Experts, flight: tuple[int, int, object]) -> int:
        layer, expert, landing = flight
        experts.wait(layer, expert, landing)  # type: ignore[arg-type]
        return landing.slot  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        self._disk.close()


class Raw:
    """Plain `pread` past the page cache, 4 MB each, through the same files in order; every run goes on where the last one ended."""

    def __init__(self, files: Sequence[tuple[Path, int]], piece: int = PIECE) -> None:
        self._descriptors = [open_direct(path) for path, _ in files]
        self._piece = piece
        self._places = [(n, offset) for n, (_, size) in enumerate(files) for offset in range(0, size, piece)]
        self._sizes = [size for _, size in files]
        self._at = 0

    def run(self, nbytes: int, threads: int) -> tuple[int, float, float]:
        """(bytes read, seconds, CPU seconds): at least `nbytes`, by so many threads."""
        places, total = [], 0
        while total < nbytes:
            file, offset = self._places[self._at % len(self._places)]
            places.append((file, offset))
            total += min(self._piece, self._sizes[file] - offset)
            self._at += 1
        # As much memory as a ring: 4 MB that stay in the processor's cache are filled a third faster, and no engine reads into those.
        arenas = [Arena(self._piece * PIECES_AHEAD, touch=1) for _ in range(threads)]

        def share(number: int) -> tuple[int, float]:
            buffer, cpu = arenas[number].array().data, time.thread_time()
            read = 0
            for i, (file, offset) in enumerate(places[number::threads]):
                at = i % PIECES_AHEAD * self._piece
                read += pread_direct(self._descriptors[file], buffer[at : at + self._piece], offset)
            return read, time.thread_time() - cpu

        with Workers(threads, "reading") as pool:
            start = time.perf_counter()
            found = [result_of(future) for future in [pool.submit(share, number) for number in range(threads)]]
        seconds = time.perf_counter() - start
        return sum(read for read, _ in found), seconds, sum(cpu for _, cpu in found)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
