"""All weights of a model, by the ways they reach the arithmetic: tape, experts, resident vectors, embedding rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lilliput._core import FaultPlan
from lilliput.errors import UsageError
from lilliput.weights.checkpoint import Checkpoint, TensorRef
from lilliput.weights.disk import READER_THREADS, Disk
from lilliput.weights.experts import Experts
from lilliput.weights.files import Bytes, ShardFiles
from lilliput.weights.layout import EMBEDDING, HEAD, Layout
from lilliput.weights.pieces import PieceSpec
from lilliput.weights.policy import DEFAULT
from lilliput.weights.tape import Tape

Array = npt.NDArray[np.float32]


@dataclass(slots=True)
class Watch:
    """Observers of a pass, for progress, traces and tests. They see arrays and must not change them."""

    on_layer: list[Callable[[int, Array], None]] = field(default_factory=list)  # (layer, running sum [N, D])
    on_route: list[Callable[[int, npt.NDArray[np.int32], Array], None]] = field(default_factory=list)  # (layer, ids, weights [N, k])

    def layer(self, index: int, running_sum: Array) -> None:
        for see in self.on_layer:
            see(index, running_sum)

    def routed(self, layer: int, ids: npt.NDArray[np.int32], weights: Array) -> None:
        for see in self.on_route:
            see(layer, ids, weights)


@dataclass(frozen=True, slots=True)
class Storage:
    """How memory is used for weights, as the plan computed it: which pieces are pinned, the ring, the experts kept and in flight."""

    pins: frozenset[int]  # indices of pieces
    ring_bytes: int
    expert_slots: int  # experts kept
    window: int  # experts in flight that are not kept
    policy: str = DEFAULT
    verify: str = "first"


TapeMaker = Callable[..., Tape]


class Weights:
    """Opens the ways to a checkpoint's weights for the tensors of `layout` (which may cover fewer layers than the checkpoint).

    The vectors are loaded at once; tape and experts wait for `allocate`. `usable_ids` limits the ids whose embedding rows are real
    (sparse synthetic checkpoints). `faults` is for tests.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        layout: Layout,
        *,
        usable_ids: int | None = None,
        reader_threads: int = READER_THREADS,
        faults: FaultPlan | None = None,
    ) -> None:
        self._checkpoint, self._layout, self._usable_ids = checkpoint, layout, usable_ids
        self._process, self._closed = os.getpid(), False
        self._turn = threading.RLock()
        self.files = ShardFiles(checkpoint.files, checkpoint.sizes)
        self.watch = Watch()
        self._embedding = checkpoint.tensors[EMBEDDING]
        self.tape: Tape
        self.experts: Experts | None = None
        try:
            self.resident = {
                spec.name: self._widened(checkpoint.tensors[spec.name])
                for spec in layout.trunk
                if not spec.is_matrix and spec.name not in (EMBEDDING, HEAD)
            }
            self.disk = Disk(reader_threads, faults)
        except BaseException:
            self.files.close()
            raise

    def allocate(
        self,
        storage: Storage,
        specs: Sequence[PieceSpec],
        tape_files: Sequence[tuple[Path, int]],
        *,
        make_tape: TapeMaker = Tape,
    ) -> None:
        """Take the memory for tape and experts. `specs` is the tape, in `tape_files` (path, size): the shards themselves, or a packed
        tape. `make_tape` is for tests."""
        self.tape = make_tape(self.disk, tape_files, specs, pins=storage.pins, ring_bytes=storage.ring_bytes, verify=storage.verify)
        if self._layout.experts is not None:
            table, shards = self._checkpoint.experts, zip(self._checkpoint.files, self._checkpoint.sizes, strict=True)
            assert table is not None
            self.experts = Experts(
                self.disk,
                list(shards),
                table,
                self._layout.experts,
                slots=storage.expert_slots,
                window=storage.window,
                policy=storage.policy,
            )

    def turn(self) -> threading.RLock:
        """To be held for a whole pass, and for what must not meet one: tape and experts serve one at a time, threads take turns.

        Raises UsageError as `check_process` does. Whoever has it asks for no session's turn (see `Session.turn`).
        """
        self.check_process()
        return self._turn

    def check_process(self) -> None:
        """Raises UsageError in a child of the process that opened the model: its memory and threads are not there, and a turn that another
        thread had at the fork would never end."""
        if os.getpid() != self._process:
            raise UsageError(
                f"the model was opened by process {self._process}, and a child ({os.getpid()}) has neither its weights nor its threads: "
                "open the checkpoint again after the fork"
            )

    def begin_pass(self, *, head: bool, more: bool) -> None:
        """A pass starts, in its turn; what an abandoned one left in flight is dropped. Raises UsageError after `close`."""
        if self._closed:
            raise UsageError("the model was closed: open the checkpoint again")
        if self.experts is not None:
            self.experts.abandon()
        self.tape.begin(head=head, more=more)

    def embed(self, ids: npt.NDArray[np.int64]) -> Array:
        """The embedding rows of ids [N] → float32 [N, D], read from the shard. Raises UsageError for an id that has no row."""
        rows, columns = self._embedding.shape
        limit = rows if self._usable_ids is None else self._usable_ids
        bad = [int(i) for i in ids if not 0 <= i < limit]
        if bad:
            why = "the vocabulary ends there" if limit == rows else "this synthetic checkpoint has no more real embedding rows (synth.json)"
            raise UsageError(f"token id {bad[0]}: needed 0 to {limit - 1}, because {why}")
        out = np.empty((len(ids), columns), np.uint16)
        for row, i in zip(out, ids, strict=True):
            self.files.read_into(self._embedding.file, self._embedding.offset + int(i) * 2 * columns, row.view(np.uint8))
        return widen(out)

    def _widened(self, tensor: TensorRef) -> Array:
        data: Bytes = self.files.read(tensor.file, tensor.offset, tensor.nbytes)
        flat = data.view(np.float32) if tensor.dtype == "F32" else widen(data.view(np.uint16))
        return flat.reshape(tensor.shape)

    def close(self) -> None:
        """End all reads and release the files; the model cannot be run any more. A pass of another thread comes to its end first.
        In a child of the process that opened it: nothing."""
        self._closed = True
        if os.getpid() != self._process:
            return
        with self.turn():
            if hasattr(self, "tape"):
                self.tape.close()
            if self.experts is not None:
                self.experts.close()
            self.disk.close()
            self.files.close()


def widen(bf16: npt.NDArray[np.uint16]) -> Array:
    """bf16 bit patterns → float32, exactly."""
    return (bf16.astype(np.uint32) << np.uint32(16)).view(np.float32)
