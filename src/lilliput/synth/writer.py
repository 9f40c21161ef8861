"""`lilliput synth`: a whole checkpoint directory from a shape and a seed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lilliput.errors import UsageError
from lilliput.model.config import config_from_json
from lilliput.model.layout import layout
from lilliput.synth import fill, sparse
from lilliput.synth.shapes import SHAPES, SPARSE_LIMIT, Shape, raw_config, raw_generation_config
from lilliput.synth.shards import Shard, index_json, plan, pretty
from lilliput.synth.staging import Staging, allocated, check_empty, check_space, sync
from lilliput.text.bytelevel import byte_level_files
from lilliput.weights.shards import INDEX

SIDE_FILE = "synth.json"

Progress = Callable[[int, int], None]


def write_synthetic(directory: Path, shape: str, seed: int = 0, progress: Progress | None = None) -> dict[str, Any]:
    """Write a synthetic checkpoint and say what it holds.

    `directory` must be absent or empty; it appears complete or not at all. `shape` is a name of `SHAPES`, `seed` an integer in
    [0, 2^64): the same seed gives the same bytes on every machine. `progress(done, total)` is told the bytes of the shards as they
    are finished (of their full size, holes included). Returns counts and sizes in bytes, for the run report.

    Raises `UsageError` (shape, seed, directory), `DoesNotFitError` (disk space, a file system without sparse files),
    `LilliputError` (the disk failed). On any error, and on Ctrl-C, what was written is removed.
    """
    chosen = _shape(shape)
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"--seed: needed a whole number from 0 to 2^64 - 1, found {seed}")
    check_empty(directory)
    if chosen.free_bytes is not None:
        check_space(directory, chosen.free_bytes, f"the shape `{shape}`")
    config = config_from_json(pretty(raw_config(chosen)), "config.json")
    shards = plan(config, vision=chosen.sparse)
    files = _small_files(chosen, seed, shards)
    total = sum(s.size for s in shards)
    if chosen.free_bytes is None:
        check_space(directory, total + sum(map(len, files.values())), f"the shape `{shape}`")
    with Staging(directory) as stage:
        if chosen.sparse:
            sparse.probe(stage.path)
        on_disk = done = 0
        for shard in shards:
            path = stage.path / shard.file
            with path.open("xb", buffering=1 << 20) as file:
                if chosen.sparse:
                    sparse.write_shard(file.fileno(), shard, seed)
                else:
                    file.write(shard.header)
                    for tensor in shard.tensors:
                        for array in fill.contents(tensor, seed):
                            file.write(array.data)
                    file.flush()
                sync(file.fileno())
            on_disk += allocated(path)
            if chosen.sparse:
                sparse.check_limit(directory, on_disk, SPARSE_LIMIT)
            done += shard.size
            if progress is not None:
                progress(done, total)
        on_disk += _write_small(stage.path, files)
        if chosen.sparse:
            sparse.check_limit(directory, on_disk, SPARSE_LIMIT)
        stage.publish([*(s.file for s in shards), *files])
    wanted = layout(config)
    return {
        "directory": str(directory),
        "shape": shape,
        "seed": seed,
        "usable_ids": chosen.usable_ids,
        "files": len(shards) + len(files),
        "shards": len(shards),
        "tensors": sum(len(s.tensors) for s in shards),
        "bytes": total,
        "bytes_on_disk": on_disk,
        "trunk_parameters": sum(t.parameters for t in wanted.trunk) + _padding(shards),
        "tape_bytes": sum(t.nbytes for t in wanted.tape()),
        "expert_bytes": wanted.experts.nbytes if wanted.experts else 0,
        "experts": len(wanted.experts.layers) * wanted.experts.num_experts if wanted.experts else 0,
    }


def _shape(name: str) -> Shape:
    if name not in SHAPES:
        raise UsageError(f"--shape: needed one of {', '.join(SHAPES)}, found {name!r}")
    return SHAPES[name]


def _padding(shards: Iterable[Shard]) -> int:
    """The zeros behind A_log, which the release's parameter count includes."""
    return sum(t.shape[0] - t.source.shape[0] for s in shards for t in s.tensors if t.source is not None and t.source.at_least)


def _small_files(shape: Shape, seed: int, shards: list[Shard]) -> dict[str, bytes]:
    """Everything but the shards, in the order of publishing: config.json last, for without it nothing is a checkpoint."""
    text: Mapping[str, bytes] = {} if shape.sparse else byte_level_files(shape.vocab_size)
    side = {"format": 1, "shape": shape.name, "seed": seed, "usable_ids": shape.usable_ids}
    return {
        INDEX: index_json(shards),
        **text,
        SIDE_FILE: pretty(side),
        "generation_config.json": json.dumps(raw_generation_config(shape)).encode(),
        "config.json": pretty(raw_config(shape)),
    }


def _write_small(folder: Path, files: Mapping[str, bytes]) -> int:
    on_disk = 0
    for name, content in files.items():
        path = folder / name
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        on_disk += allocated(path)
    return on_disk
