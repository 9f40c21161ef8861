"""Packing a model's tape and checking a packed one: what the verbs `pack` and `verify` do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lilliput import _core
from lilliput.engine.engine import choose_machine, use_machine
from lilliput.engine.models import DEMO, DEMO_NAME, find_model
from lilliput.errors import CheckpointError, UsageError
from lilliput.machine.places import packed_directory
from lilliput.model.config import read_hashed_config
from lilliput.model.layout import layout
from lilliput.weights.checked import verify
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.manifest import MANIFEST
from lilliput.weights.pack import Source, pack
from lilliput.weights.packed import open_packed
from lilliput.weights.shards import find_shards

Progress = Callable[[int, int], None]


def open_source(model: str | os.PathLike[str]) -> Source:
    """The checkpoint meant by `model` with what packing needs of it. Raises InputError and UsageError as opening a model does."""
    directory = find_model(model)
    config, config_hash = read_hashed_config(directory)
    wanted = layout(config)
    return Source(directory, Checkpoint.open(directory, wanted), config_hash, wanted)


def pack_model(
    source: Source, directory: Path | None = None, *, threads: int | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Write the packed tape to `directory`, by default where the engine finds it by itself. `lilliput.weights.pack.pack` says the rest."""
    count, isa = choose_machine(threads, None)
    place = directory or default_place(source)
    before = _core.threads()
    use_machine(1, isa)  # every thread encodes pieces of its own
    try:
        return pack(source, place, threads=count, progress=progress)
    finally:
        _core.set_threads(before)


def default_place(source: Source) -> Path:
    return packed_directory(source.directory, source.checkpoint.files)


def verify_packed(directory: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Check the manifest and every piece of a packed tape. Raises ContentError naming all bad pieces; InputError or UsageError where
    there is no packed tape."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: needed the directory of a packed tape, found {'a file' if directory.exists() else 'nothing'}")
    if (directory / "config.json").exists() and not (directory / MANIFEST).exists():
        raise UsageError(f"{directory}: needed the directory of a packed tape, found a checkpoint: {_verifiable(directory)}")
    packed = open_packed(directory)
    verify(packed, progress)
    return {"directory": str(directory), "pieces": len(packed.pieces), "bytes": packed.nbytes, "matrices": len(packed.matrices), "bad": 0}


def _verifiable(checkpoint: Path) -> str:
    """What somebody can do who wants the packed tape of `checkpoint` verified."""
    try:
        place = packed_directory(checkpoint, find_shards(checkpoint).paths)
    except CheckpointError:  # incomplete, which is not what was asked about
        place = None
    if place is not None and (place / MANIFEST).is_file():
        return f"its packed tape is verified by `lilliput verify {shlex.quote(str(place))}`"
    name = DEMO_NAME if checkpoint == DEMO else str(checkpoint)
    return f"it has no packed tape in its default place: `lilliput pack {shlex.quote(name)}` writes one and names it"
