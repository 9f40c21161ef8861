"""Packing in tests, and what must come out of it, read from the files by other means than the packer's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contract_dot as plain
import numpy as np

from lilliput.engine.packing import open_source
from lilliput.weights.pack import Source, pack
from lilliput.weights.packed import Packed, open_packed

SMALL = 4096  # bytes of bf16 rows per piece: many pieces of a small model


def source_of(directory: Path) -> Source:
    return open_source(directory)


def packed_from(directory: Path, out: Path, **options: Any) -> Packed:
    pack(source_of(directory), out, threads=options.pop("threads", 2), **options)
    return open_packed(out)


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def stored_rows(directory: Path, name: str) -> np.ndarray:
    """uint16 [rows, columns] of a tensor, by the safetensors format itself."""
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            for spelling in (name, f"language_model.{name}"):
                if entry := header.get(spelling):
                    begin, end = entry["data_offsets"]
                    file.seek(8 + length + begin)
                    return np.frombuffer(file.read(end - begin), "<u2").reshape(entry["shape"])
    raise KeyError(name)


def pieces_of(packed: Packed) -> Iterator[tuple[str, int, np.ndarray]]:
    """(matrix, first row, uint16 [rows, columns]) of every piece, K12 decoded from its description alone."""
    for piece in packed.pieces:
        with packed.files[piece.file].open("rb") as file:
            file.seek(piece.offset)
            raw = file.read(piece.nbytes)
        rows = plain.k12_decode(raw, piece.rows, piece.columns).tobytes() if piece.kind == "k12" else raw
        yield piece.name, piece.row, np.frombuffer(rows, "<u2").reshape(piece.rows, piece.columns)


def assert_same_weights(packed: Packed, directory: Path, names: list[str], **from_other: str) -> None:
    """The packed matrices are `names` in this order, and each is what the shards hold; `from_other`: matrix → tensor it comes from."""
    matrices: dict[str, list[np.ndarray]] = {}
    for name, first, rows in pieces_of(packed):
        parts = matrices.setdefault(name, [])
        assert first == sum(len(part) for part in parts)
        parts.append(rows)
    assert list(matrices) == names
    for name, parts in matrices.items():
        np.testing.assert_array_equal(np.concatenate(parts), stored_rows(directory, from_other.get(name, name)), err_msg=name)
