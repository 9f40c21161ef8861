"""What the plan has to know about a model and this process, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lilliput.model.config import Config
from lilliput.weights.layout import HEAD
from lilliput.weights.pieces import PieceSpec


@dataclass(frozen=True, slots=True)
class Demand:
    """Facts, gathered by the engine before it allocates anything large.

    piece_bytes: what each piece of the tape takes in memory and on disk, alignment included, in the tape's order. head_pieces: how
    many of the last ones are the head (not played in passes without logits). held_bytes: the largest piece that is held while others
    go by (kv_b). slot_bytes: one expert in memory, alignment included; 0 without experts. base_bytes: resident memory of the process
    with everything loaded that is neither tape nor expert. threads: that compute.
    """

    config: Config
    piece_bytes: tuple[int, ...]
    head_pieces: int
    held_bytes: int
    slot_bytes: int
    base_bytes: int
    threads: int = 1

    @property
    def tape_bytes(self) -> int:
        return sum(self.piece_bytes)

    @property
    def moe_layers(self) -> int:
        return sum(self.config.is_moe(i) for i in range(self.config.num_layers))


def widened(offset: int, nbytes: int, alignment: int) -> int:
    """Bytes that a direct read of [offset, offset + nbytes) takes: from the aligned byte at or before it to the one at or after its end."""
    return -(-(offset + nbytes) // alignment) * alignment - offset // alignment * alignment


def slot_bytes(parts: Sequence[int], alignment: int, *, adjacent: bool) -> int:
    """What one expert takes in memory wherever it lies: its tensors as one extent, or as one extent each."""
    extents = [sum(parts)] if adjacent else list(parts)
    return sum(-(-(n + alignment - 1) // alignment) * alignment for n in extents)


def demand_of(
    config: Config, pieces: Sequence[PieceSpec], *, slot: int, base_bytes: int, threads: int, alignment: int | Sequence[int] = 4096
) -> Demand:
    """The demand of a tape cut into `pieces`, read with an alignment common to its files or given per file."""
    sizes = tuple(widened(p.offset, p.nbytes, alignment if isinstance(alignment, int) else alignment[p.file]) for p in pieces)
    held = max((n for n, p in zip(sizes, pieces, strict=True) if p.name.endswith(".kv_b_proj.weight")), default=0)
    return Demand(config, sizes, sum(p.name == HEAD for p in pieces), held, slot, base_bytes, threads)
