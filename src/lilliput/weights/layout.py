"""What a checkpoint must hold, as plain data: filled in by `model.layout`, read by everything that touches files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

ITEM_SIZES = {"F32": 4, "BF16": 2, "U8": 1}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One trunk tensor. `name` is the release's, without the prefix `language_model.`.

    `at_least` marks `A_log`, whose first dimension may be longer than the head count (zero padded).
    `group` is the census line: embedding, attention, shared, other.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    group: str
    at_least: bool = False

    @property
    def parameters(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.parameters * ITEM_SIZES[self.dtype]

    @property
    def is_matrix(self) -> bool:
        """On the tape: BF16 with two or more rows (the embedding is not: its rows are read one by one)."""
        return self.dtype == "BF16" and len(self.shape) == 2 and self.shape[0] >= 2 and self.name != EMBEDDING


EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """The six U8 tensors of every expert: (suffix, shape), in the order of `PARTS`."""

    layers: tuple[int, ...]
    num_experts: int
    width: int  # rows of w1 and w3
    latent: int  # rows of w2, columns of w1 and w3

    PARTS = ("w1.weight_packed", "w1.weight_scale", "w2.weight_packed", "w2.weight_scale", "w3.weight_packed", "w3.weight_scale")

    @property
    def count(self) -> int:
        """Experts of all layers together."""
        return len(self.layers) * self.num_experts

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        w, a = self.width, self.latent
        return ((w, a // 2), (w, a // 32), (a, w // 2), (a, w // 32), (w, a // 2), (w, a // 32))

    @property
    def part_bytes(self) -> tuple[int, ...]:
        return tuple(r * c for r, c in self.shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of one expert."""
        return sum(self.part_bytes)

    @property
    def parameters(self) -> int:
        """Parameters of one expert."""
        return 3 * self.width * self.latent

    def name(self, layer: int, expert: int, part: int) -> str:
        return f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{self.PARTS[part]}"


@dataclass(frozen=True, slots=True)
class Layout:
    """All tensors of a text model. `trunk` is in order of use; `experts` is None where every layer is dense."""

    trunk: tuple[TensorSpec, ...]
    experts: ExpertSpec | None

    def tape(self) -> Iterator[TensorSpec]:
        """The matrices in the order a pass multiplies with them, the head last."""
        return (t for t in self.trunk if t.is_matrix)

    def matrices(self) -> dict[str, str]:
        """The tape's matrices in order, the head last, and the tensor that holds each: tied, the head's is the embedding."""
        head = HEAD if any(t.name == HEAD for t in self.trunk) else EMBEDDING
        return {t.name: t.name for t in self.tape() if t.name != HEAD} | {HEAD: head}
