"""What the plan has to know about a model and this process, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lilliput.model.config import Config
from lilliput.weights.layout import HEAD
from lilliput.weights.pieces import PieceSpec, is_held


@dataclass(frozen=True, slots=True)
class Demand:
    """Facts, gathered by the engine before it allocates anything large.

    piece_bytes: what each piece of the tape takes in memory, alignment included, in the tape's order; read_bytes: what reading it takes
    from disk, where that differs. head_pieces: how many of the last ones are the head (not played in passes without logits).
    held_bytes: the largest piece that is held while others go by (kv_b); streamed_bytes: the largest of the others, where that is
    known. slot_bytes: one expert in memory, alignment included; 0 without experts. base_bytes: resident memory of the process with
    everything loaded that is neither tape nor expert. threads: that compute. reserve: bytes that whoever runs the model keeps meanwhile.
    """

    config: Config
    piece_bytes: tuple[int, ...]
    head_pieces: int
    held_bytes: int
    slot_bytes: int
    base_bytes: int
    threads: int = 1
    read_bytes: tuple[int, ...] = ()
    streamed_bytes: int = 0
    reserve: int = 0

    @property
    def largest(self) -> int:
        """Of the pieces that are not held; at most."""
        return self.streamed_bytes or max(self.piece_bytes, default=0)

    @property
    def tape_bytes(self) -> int:
        """In memory."""
        return sum(self.piece_bytes)

    @property
    def reads(self) -> tuple[int, ...]:
        return self.read_bytes or self.piece_bytes

    @property
    def moe_layers(self) -> int:
        return sum(self.config.is_moe(i) for i in range(self.config.num_layers))


def widened(offset: int, nbytes: int, alignment: int) -> int:
    """Bytes that a direct read of [offset, offset + nbytes) takes: from the aligned byte at or before it to the one at or after its end."""
    return -(-(offset + nbytes) // alignment) * alignment - offset // alignment * alignment


MEMORY_ALIGNMENT = 4096  # no disk asks for more, so memory is laid out for it


def demand_of(
    config: Config,
    pieces: Sequence[PieceSpec],
    *,
    slot: int,
    base_bytes: int,
    threads: int,
    reads: Sequence[int] | None = None,
    reserve: int = 0,
) -> Demand:
    """The demand of a tape cut into `pieces`. `reads`: bytes that reading each takes, where the files' alignment is known."""
    sizes = tuple(widened(p.offset, p.nbytes, MEMORY_ALIGNMENT) for p in pieces)
    held = max((n for n, p in zip(sizes, pieces, strict=True) if is_held(p.name)), default=0)
    streamed = max((n for n, p in zip(sizes, pieces, strict=True) if not is_held(p.name)), default=0)
    heads = sum(p.name == HEAD for p in pieces)
    return Demand(config, sizes, heads, held, slot, base_bytes, threads, tuple(reads or ()), streamed, reserve)
