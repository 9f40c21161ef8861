"""Demands of the real model and of made-up ones, for tests of the plan."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from lilliput.machine.demand import Demand, demand_of
from lilliput.model.config import Config, config_from_json
from lilliput.model.layout import layout
from lilliput.synth.shapes import SHAPES, raw_config
from lilliput.weights.experts import slot_bytes
from lilliput.weights.pieces import PieceSpec, cut, is_held

BASE = 130_000_000


def config_of(shape: str) -> Config:
    return config_from_json(msgspec.json.encode(raw_config(SHAPES[shape])), "config.json")


def demand(shape: str = "k3", *, packed: bool = False, base: int = BASE) -> Demand:
    """The tape of a shape laid end to end in one file, as bf16 rows or 12-bit tiles."""
    config = config_of(shape)
    wanted = layout(config)
    pieces, offset = [], 0
    for spec in wanted.tape():
        rows, columns = spec.shape
        for row, n in cut(rows, columns, whole=is_held(spec.name)):
            nbytes = (n + 3) // 4 * 4 * ((columns + 127) // 128 * 128) * 3 // 2 if packed else 2 * n * columns
            pieces.append(PieceSpec(spec.name, row, n, columns, "k12" if packed else "bf16", 0, offset, nbytes))
            offset += nbytes
    assert wanted.experts is not None
    return demand_of(config, pieces, slot=slot_bytes(wanted.experts), base_bytes=base, threads=2)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Any tape and expert size over the configuration of a small model."""
    config = config_of(draw(st.sampled_from(("tiny", "mini"))))
    blocks = draw(st.lists(st.integers(1, 1024), min_size=1, max_size=60))
    held = draw(st.integers(0, 2048))
    sizes = [4096 * n for n in (*blocks, held) if n]
    experts = draw(st.integers(0, 300))
    if not experts:
        config = replace(config, first_k_dense_replace=config.num_layers)
    base = draw(st.integers(10_000_000, 200_000_000))
    threads = draw(st.integers(1, 16))
    return Demand(config, tuple(sizes), min(3, len(blocks)), 4096 * held, 4096 * experts, base, threads, streamed_bytes=4096 * max(blocks))
