"""The index sidecar: what a checkpoint's headers said last time, so that opening it again reads none of them.

One file per checkpoint directory in the user's cache, never in the checkpoint. It is believed only if every byte of it is sound (a
digest), it was made for the same layout, and the index file and all shards have the size, times and inode they had then. Anything else,
and any failure to read or write it, means reading the headers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from lilliput.errors import CheckpointError, UsageError
from lilliput.machine.cache import keep, kept
from lilliput.machine.places import cache_directory
from lilliput.weights.catalogue import ExpertTable, Skipped, Stock, TensorRef
from lilliput.weights.layout import Layout
from lilliput.weights.shards import INDEX, Shards, find_shards, locate

MAGIC = b"lilliput index 2"  # 16 bytes; the number changes with the meaning of anything below
DIGEST = 32
LARGEST = 64_000_000  # bytes; of the released checkpoint it has 5 million
Stamp = tuple[int, int, int, int]  # size, mtime, ctime, inode; ctime sees what restores mtime


class _Contents(msgspec.Struct):
    """The front of a sidecar; behind it, 8-byte aligned, lie the offsets (int64) and file numbers (int16) of the experts."""

    directory: str
    layout: str
    index: Stamp | None
    names: tuple[str, ...]
    stamps: tuple[Stamp, ...]
    tensors: tuple[tuple[str, str, tuple[int, ...], int, int, int], ...]
    experts: bool
    skipped: Skipped
    padding: int


def stamp(path: Path) -> Stamp:
    """What tells one state of a file from another without reading it."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def layout_digest(layout: Layout) -> str:
    """A digest over every name, shape and dtype that the layout demands."""
    lines = [f"{t.name} {t.shape} {t.dtype} {t.at_least}" for t in layout.trunk]
    e = layout.experts
    lines.append(f"{e.layers} {e.num_experts} {e.shapes} {e.PARTS}" if e else "no experts")
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


class Sidecar:
    """The sidecar of one directory and layout, whether it exists or not."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self.directory, self.layout = directory.resolve(), layout
        self._layout_digest = layout_digest(layout)
        cache = _cache_directory()
        if cache is not None and _real(cache).is_relative_to(self.directory):
            cache = None  # nothing is ever written into a checkpoint
        name = hashlib.blake2b(os.fsencode(self.directory), digest_size=16).hexdigest()
        self.path = cache / f"index-{name}.bin" if cache else None

    def load(self) -> tuple[Shards, Stock] | None:
        """What it holds, or None if there is nothing to believe."""
        try:
            return self._load()
        except (OSError, ValueError, msgspec.MsgspecError, CheckpointError):
            return None

    def _load(self) -> tuple[Shards, Stock] | None:
        if self.path is None:
            return None
        raw = kept(self.path, LARGEST)
        if raw is None:
            return None
        body = memoryview(raw)[len(MAGIC) + DIGEST :]
        if raw[: len(MAGIC)] != MAGIC or _digest(body) != raw[len(MAGIC) : len(MAGIC) + DIGEST]:
            return None
        length = int.from_bytes(body[:8], "little")
        contents = msgspec.msgpack.decode(body[8 : 8 + length], type=_Contents)
        if contents.directory != _text(self.directory) or contents.layout != self._layout_digest:
            return None
        shards = self._same_shards(contents)
        if shards is None:
            return None
        table = None
        spec = self.layout.experts
        if spec is not None and contents.experts:
            shape = (len(spec.layers), spec.num_experts, 6)
            count, at = shape[0] * shape[1] * 6, _aligned(8 + length)
            offset = np.frombuffer(body, np.int64, count, at).reshape(shape)  # views of `raw`, so read-only and not copied
            file = np.frombuffer(body, np.int16, count, at + 8 * count).reshape(shape)
            table = ExpertTable(spec, file, offset)
        tensors = {t[0]: TensorRef(*t) for t in contents.tensors}
        return shards, Stock(tuple(s[0] for s in contents.stamps), tensors, table, contents.skipped, contents.padding)

    def _same_shards(self, contents: _Contents) -> Shards | None:
        """The shards, if index and files are the ones the sidecar was made from."""
        index = self.directory / INDEX
        if contents.index is None:
            shards = find_shards(self.directory)
            if shards.index is not None or shards.names != contents.names:
                return None
        else:
            if stamp(index) != contents.index:
                return None
            shards = locate(self.directory, index, list(contents.names))
        return shards if tuple(map(stamp, shards.paths)) == contents.stamps else None

    def save(self, shards: Shards, index: Stamp | None, stamps: Sequence[Stamp], stock: Stock) -> None:
        """Writes the sidecar, whole or not at all; a cache that cannot be written is no fault.

        `index` and `stamps` were taken before the headers were read, so that a file replaced meanwhile makes the sidecar worthless, not
        wrong.
        """
        if self.path is None:
            return
        experts = stock.experts
        contents = _Contents(
            directory=_text(self.directory),
            layout=self._layout_digest,
            index=index,
            names=shards.names,
            stamps=tuple(stamps),
            tensors=tuple((t.name, t.dtype, t.shape, t.file, t.offset, t.nbytes) for t in stock.tensors.values()),
            experts=experts is not None,
            skipped=stock.skipped,
            padding=stock.padding,
        )
        front = msgspec.msgpack.encode(contents)
        head = len(front).to_bytes(8, "little") + front
        parts: list[bytes | memoryview] = [head + bytes(_aligned(len(head)) - len(head))]
        if experts:
            parts += [experts.offset.data.cast("B"), experts.file.data.cast("B")]
        keep(self.path, [MAGIC, _digest(*parts), *parts])


def _cache_directory() -> Path | None:
    try:
        return cache_directory()
    except UsageError:  # a cache that cannot be is no fault
        return None


def _digest(*parts: bytes | memoryview) -> bytes:
    total = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        total.update(part)
    return total.digest()


def _aligned(length: int) -> int:
    """The next multiple of 8: magic and digest have 48 bytes, so this is aligned in the file and, read as a whole, in memory."""
    return -(-length // 8) * 8


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, no exception for a loop of links


def _text(path: Path) -> str:
    """A path as text, whatever bytes it is made of."""
    return os.fsencode(path).hex()
