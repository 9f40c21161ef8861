"""What a checkpoint holds, counted: routed experts, shared experts, attention, embedding, the rest, and what is not text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lilliput.engine.models import find_model
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.layout import EMBEDDING, Layout

GROUPS = ("shared", "attention", "embedding", "other")


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a checkpoint; `streamed` are the bytes of it that are read again in every pass, or when chosen."""

    part: str
    tensors: int
    parameters: int
    nbytes: int
    streamed: int


@dataclass(frozen=True, slots=True)
class Census:
    directory: str
    layers: int
    kda_layers: int
    shards: int
    lines: tuple[Line, ...]
    tape_bytes: int
    expert_bytes: int

    @property
    def total(self) -> Line:
        return Line("total", *(sum(getattr(x, n) for x in self.lines) for n in ("tensors", "parameters", "nbytes", "streamed")))

    @property
    def trunk_parameters(self) -> int:
        """Text parameters that are no routed experts; the zero padding of A_log counts, as in the release's own numbers."""
        return sum(line.parameters for line in self.lines if line.part in GROUPS)

    def as_dict(self) -> dict[str, Any]:
        return {"command": "inspect", **asdict(self), "total": asdict(self.total), "trunk_parameters": self.trunk_parameters}


def take_census(model: str | os.PathLike[str]) -> Census:
    """Open a checkpoint (every tensor checked against its configuration) and count it."""
    directory = find_model(model)
    config = read_config(directory)
    wanted = layout(config)
    checkpoint = Checkpoint.open(directory, wanted)
    return Census(
        str(directory),
        config.num_layers,
        sum(config.is_kda),
        len(checkpoint.files),
        tuple(_lines(checkpoint, wanted)),
        sum(spec.nbytes for spec in wanted.tape()),
        wanted.experts.nbytes if wanted.experts else 0,
    )


def _lines(checkpoint: Checkpoint, wanted: Layout) -> Iterator[Line]:
    if (experts := wanted.experts) is not None:
        nbytes = experts.count * experts.nbytes
        yield Line("routed", 6 * experts.count, experts.count * experts.parameters, nbytes, nbytes)
    for group in GROUPS:
        specs = [spec for spec in wanted.trunk if spec.group == group]
        padding = checkpoint.padding if group == "attention" else 0  # of A_log: float32
        parameters = sum(spec.parameters for spec in specs) + padding
        nbytes = sum(spec.nbytes for spec in specs) + 4 * padding
        streamed = sum(spec.nbytes for spec in specs if spec.is_matrix or spec.name == EMBEDDING)
        yield Line(group, len(specs), parameters, nbytes, streamed)
    yield Line("vision", *checkpoint.skipped, 0)
