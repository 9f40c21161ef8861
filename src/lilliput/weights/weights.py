"""All weights of a model, by the ways they reach the arithmetic: tape, experts, resident vectors, embedding rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lilliput.errors import UsageError
from lilliput.weights.checkpoint import Checkpoint, TensorRef
from lilliput.weights.experts import Experts, NoExperts
from lilliput.weights.files import Bytes, ShardFiles
from lilliput.weights.layout import EMBEDDING, HEAD, Layout
from lilliput.weights.tape import Tape, TapeEntry, tape_entry

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


class Weights:
    """Opens the ways to a checkpoint's weights for the tensors of `layout` (which may cover fewer layers than the checkpoint).

    `usable_ids` limits the ids whose embedding rows are real (sparse synthetic checkpoints). `tape` replaces the tape made
    from the shards: a function of the entries.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        layout: Layout,
        *,
        resident: bool,
        usable_ids: int | None = None,
        tape: Callable[[ShardFiles, list[TapeEntry]], Tape] | None = None,
    ) -> None:
        self.shards = ShardFiles(checkpoint.files, checkpoint.sizes)
        self.watch = Watch()
        self._embedding = checkpoint.tensors[EMBEDDING]
        self._usable_ids = usable_ids
        self.resident = {
            spec.name: self._widened(checkpoint.tensors[spec.name])
            for spec in layout.trunk
            if not spec.is_matrix and spec.name not in (EMBEDDING, HEAD)
        }
        entries = self._entries(checkpoint, layout)
        self.tape = tape(self.shards, entries) if tape else Tape(self.shards, entries, resident=resident)
        self.experts: Experts = NoExperts()
        if layout.experts is not None:
            assert checkpoint.experts is not None
            self.experts = Experts(self.shards, checkpoint.experts, layout.experts, resident=resident)

    @staticmethod
    def _entries(checkpoint: Checkpoint, layout: Layout) -> list[TapeEntry]:
        names = [spec.name for spec in layout.tape() if spec.name != HEAD]
        entries = [tape_entry(name, checkpoint.tensors[name], whole=name.endswith(".kv_b_proj.weight")) for name in names]
        head = checkpoint.tensors.get(HEAD, checkpoint.tensors[EMBEDDING])  # tied: the head's pieces point at the embedding
        return [*entries, tape_entry(HEAD, head)]

    def begin_pass(self) -> None:
        self.tape.rewind()

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
            self.shards.read_into(self._embedding.file, self._embedding.offset + int(i) * 2 * columns, row.view(np.uint8))
        return widen(out)

    def _widened(self, tensor: TensorRef) -> Array:
        data: Bytes = self.shards.read(tensor.file, tensor.offset, tensor.nbytes)
        flat = data.view(np.float32) if tensor.dtype == "F32" else widen(data.view(np.uint16))
        return flat.reshape(tensor.shape)

    def close(self) -> None:
        self.shards.close()


def widen(bf16: npt.NDArray[np.uint16]) -> Array:
    """bf16 bit patterns → float32, exactly."""
    return (bf16.astype(np.uint32) << np.uint32(16)).view(np.float32)
