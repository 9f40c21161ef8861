"""What a checkpoint holds, counted: routed experts, shared experts, attention, embedding, the rest."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from lilliput.engine.models import find_model
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.layout import EMBEDDING, TensorSpec

STREAMED = {
    "routed": "read in place when chosen",
    "shared": "tape",
    "attention": "tape and resident",
    "embedding": "rows; head on the tape",
}


@dataclass(frozen=True, slots=True)
class Line:
    part: str
    tensors: int
    parameters: int
    nbytes: int
    streamed: str


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
        return Line(
            "total", sum(x.tensors for x in self.lines), sum(x.parameters for x in self.lines), sum(x.nbytes for x in self.lines), ""
        )

    @property
    def trunk_parameters(self) -> int:
        return sum(line.parameters for line in self.lines if line.part != "routed")

    def as_dict(self) -> dict[str, Any]:
        return {"command": "inspect", **asdict(self), "total": asdict(self.total), "trunk_parameters": self.trunk_parameters}


def take_census(model: str | os.PathLike[str]) -> Census:
    """Open a checkpoint (every tensor checked against its configuration) and count it. Vision tensors are not text: not counted."""
    directory: Path = find_model(model)
    config = read_config(directory)
    wanted = layout(config)
    checkpoint = Checkpoint.open(directory, wanted)
    lines = []
    experts = wanted.experts
    if experts is not None:
        n = len(experts.layers) * experts.num_experts
        lines.append(Line("routed", 6 * n, n * experts.parameters, n * experts.nbytes, STREAMED["routed"]))
    for group in ("shared", "attention", "embedding", "other"):
        specs = [spec for spec in wanted.trunk if spec.group == group]
        found = [checkpoint.tensors[spec.name] for spec in specs]
        lines.append(
            Line(group, len(specs), sum(prod(t.shape) for t in found), sum(t.nbytes for t in found), STREAMED.get(group, _streamed(specs)))
        )
    return Census(
        str(directory),
        config.num_layers,
        sum(config.is_kda),
        len(checkpoint.files),
        tuple(lines),
        sum(spec.nbytes for spec in wanted.tape()),
        experts.nbytes if experts else 0,
    )


def _streamed(specs: list[TensorSpec]) -> str:
    matrices = [spec for spec in specs if spec.is_matrix or spec.name == EMBEDDING]
    return "tape and resident" if len(matrices) < len(specs) else "tape"
