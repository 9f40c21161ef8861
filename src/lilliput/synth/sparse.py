"""The full size on a small disk: true names, shapes and file sizes; the large matrices are holes that read as zeros.

Real are the small tensors (norms, residual mixing, convolutions, A_log, dt_bias, selection bias), 256 rows of embedding and head, and
one 4 KiB block in every row of every router. With every matrix of attention and MLPs zero, each layer adds zero: the running sum
is zero after layer 0, and the embedding lives on as stored block 0. The depth mixing still gives every layer a positive share of it, the
norm scales that share up, and the router rows see it: so ids and expert choices depend on the token, as in the release.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lilliput.errors import DoesNotFitError, LilliputError
from lilliput.synth import fill, values
from lilliput.synth.shapes import SPARSE_IDS
from lilliput.synth.shards import Placed, Shard
from lilliput.weights.layout import EMBEDDING, HEAD

GRID = 4096  # bytes; blocks of real bytes inside holes lie on this grid of the file, so that each costs one disk block
_ROUTER = ".gate.weight"


def write_shard(fd: int, shard: Shard, seed: int) -> None:
    """Fill an empty file: its full length first, then the header and what is real of the tensors."""
    os.truncate(fd, shard.size)
    _write(fd, 0, shard.header)
    for tensor in shard.tensors:
        spec = tensor.source
        if spec is None:
            continue
        if spec.name in (EMBEDDING, HEAD):
            rows = _first_rows(tensor, seed)
            _write_all(fd, tensor.offset, rows)
        elif spec.name.endswith(_ROUTER):
            for offset, block in router_blocks(tensor, seed):
                _write(fd, offset, block)
        elif not spec.is_matrix:
            _write_all(fd, tensor.offset, fill.contents(tensor, seed))


def _first_rows(tensor: Placed, seed: int) -> Iterator[values.Array]:
    columns = tensor.shape[1]
    embedding = tensor.source is not None and tensor.source.name == EMBEDDING
    # Unit embeddings: the mixing may leave a hundredth of one, which must stay above the epsilon of the norms.
    table = fill.normal("BF16", 0.0, 1.0) if embedding else fill.matrix_table("BF16", columns)
    return values.picks(values.stream_key(seed, tensor.name), table, SPARSE_IDS * columns)


def router_blocks(tensor: Placed, seed: int) -> Iterator[tuple[int, values.Array]]:
    """(absolute offset, one `GRID` of bf16 values) for each row: one of the grid blocks that lie wholly inside the row."""
    rows, columns = tensor.shape
    row_bytes, inside = 2 * columns, GRID // 2
    table = fill.matrix_table("BF16", inside)  # logits of unit deviation from the columns that are there
    blocks = np.concatenate(list(values.picks(values.stream_key(seed, tensor.name), table, rows * inside))).reshape(rows, inside)
    choice = values.words(values.stream_key(seed, tensor.name + " block"), 0, rows)
    for row in range(rows):
        begin = tensor.offset + row * row_bytes
        first = -(-begin // GRID)
        count = (begin + row_bytes) // GRID - first
        yield (first + int(choice[row] % np.uint64(count))) * GRID, blocks[row]


def probe(folder: Path) -> None:
    """`DoesNotFitError` unless this file system keeps holes as holes, and small blocks in them small."""
    blocks, stride = 64, 1 << 20
    path = folder / "probe"
    with path.open("xb") as file:
        fd = file.fileno()
        os.truncate(fd, blocks * stride)
        for i in range(blocks):
            _write(fd, i * stride + GRID, b"\1" * GRID)
        os.fsync(fd)
        taken = os.fstat(fd).st_blocks * 512
    path.unlink()
    if taken > 2 * blocks * GRID:
        raise DoesNotFitError(
            f"{folder.parent}: the shape `k3` needs a file system with sparse files in blocks of {GRID} bytes; here {blocks} such blocks "
            f"in {blocks * stride:,} bytes of hole take {taken:,} bytes; choose a directory on ext4, XFS or Btrfs, or another shape"
        )


def check_limit(directory: Path, on_disk: int, limit: int) -> None:
    """Stop before a file system that fills the holes after all fills the disk."""
    if on_disk > limit:
        raise DoesNotFitError(
            f"{directory}: the shape `k3` needed at most {limit / 1e6:.0f} MB on disk and has taken {on_disk / 1e6:.0f} MB: "
            "this file system fills the holes; what was written has been removed; choose a directory on ext4, XFS or Btrfs"
        )


def _write_all(fd: int, offset: int, arrays: Iterator[values.Array]) -> None:
    for array in arrays:
        _write(fd, offset, array)
        offset += array.nbytes


def _write(fd: int, offset: int, data: values.Array | bytes) -> None:
    view = memoryview(data).cast("B")  # type: ignore[arg-type]
    while view:
        done = os.pwrite(fd, view, offset)
        if done == 0:
            raise LilliputError(f"the disk took no bytes at offset {offset}")
        view, offset = view[done:], offset + done
