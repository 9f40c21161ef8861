"""An opened checkpoint: where every tensor of the text model lies, checked against the layout. No weights are read here.

`Checkpoint.open` finds the files (`shards.py`), reads their headers (`safetensors.py`) and compares them with the layout
(`catalogue.py`), or takes all of that from the sidecar of an earlier time (`index_cache.py`). The directory is only ever read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lilliput.errors import CheckpointError, Problem
from lilliput.machine.fetching import fetch_again
from lilliput.weights.catalogue import Catalogue, ExpertTable, Found, Skipped, Stock, TensorRef
from lilliput.weights.index_cache import Sidecar, Stamp, stamp
from lilliput.weights.layout import EMBEDDING, Layout
from lilliput.weights.safetensors import Header, read_header
from lilliput.weights.shards import Shards, find_shards, open_directory

__all__ = ["Checkpoint", "ExpertTable", "TensorRef"]

BLOCK = 1 << 20  # bytes compared at a time
MANY = 4_000_000  # expert tensors; the release has 494,592


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Files and tensors of a checkpoint.

    `files` are the shards with links resolved, in name order, and `sizes` their bytes. `tensors` holds the trunk by the release's names
    without prefix, in the layout's order; each reference has the layout's shape (of a padded `A_log` the part that counts). `experts` is
    None where every layer is dense. For a census: `skipped` (vision) is in the files but not in a text model, and `padding` zeros of
    `A_log` are stored beyond the layout's shapes (2,208 in the release, whose published 56,743,648,000 trunk parameters count them).
    `identity` names this set of shards (names and sizes), for files that belong to it. `from_sidecar`: no header was read.
    """

    path: Path
    files: tuple[Path, ...]
    sizes: tuple[int, ...]
    tensors: dict[str, TensorRef]
    experts: ExpertTable | None
    skipped: Skipped
    padding: int
    identity: str
    from_sidecar: bool

    @classmethod
    def open(cls, directory: Path | str, layout: Layout, *, cache: bool = True) -> Checkpoint:
        """The checkpoint in `directory`; CheckpointError with every missing file, malformed header or difference to the layout.

        With `cache`, an index sidecar in the user's cache directory is used and written.
        """
        path = open_directory(directory)
        sidecar = Sidecar(path, layout) if cache else None
        if sidecar and (known := sidecar.load()):
            shards, stock = known
            return cls._of(path, shards, stock, from_sidecar=True)
        shards = find_shards(path)
        index, stamps = _stamps(shards)
        stock = _read_all(shards, tuple(s[0] for s in stamps), layout)
        if sidecar:
            sidecar.save(shards, index, stamps, stock)
        return cls._of(path, shards, stock, from_sidecar=False)

    @classmethod
    def _of(cls, path: Path, shards: Shards, stock: Stock, from_sidecar: bool) -> Checkpoint:
        text = "\n".join(f"{name} {size}" for name, size in zip(shards.names, stock.sizes, strict=True))
        identity = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return cls(path, shards.paths, stock.sizes, stock.tensors, stock.experts, stock.skipped, stock.padding, identity, from_sidecar)


def _stamps(shards: Shards) -> tuple[Stamp | None, tuple[Stamp, ...]]:
    try:
        return stamp(shards.index) if shards.index else None, tuple(map(stamp, shards.paths))
    except OSError as error:
        raise CheckpointError([Problem(error.filename, "", "a readable file", error.strerror or str(error))]) from None


def _read_all(shards: Shards, sizes: tuple[int, ...], layout: Layout) -> Stock:
    """All headers, read and compared; CheckpointError with every fault and difference."""
    _refuse_absurd(shards, sizes, layout)
    catalogue = Catalogue(layout, shards.paths, shards.directory)
    problems: list[Problem] = []
    for number, header in enumerate(_headers(shards, problems)):
        if header:
            catalogue.add(header, number)
    if problems:  # what is in a file whose header cannot be read is not "missing"
        complained = {problem.file for problem in problems}
        damaged = [name for name, path in zip(shards.names, shards.paths, strict=True) if str(path) in complained]
        raise CheckpointError(problems, fetch_again(shards.directory, damaged))
    problems = catalogue.differences() or [*_padding(catalogue), *_second_head(catalogue)]
    if problems:
        raise CheckpointError(problems, "config.json and the shards must be of one model")
    return catalogue.stock(sizes)


def _headers(shards: Shards, problems: list[Problem]) -> Iterator[Header | None]:
    """One header at a time (each is dropped before the next is read); None and problems for a malformed one."""
    for path in shards.paths:
        try:
            header = read_header(path)
        except CheckpointError as error:
            problems += error.problems
            yield None
        else:
            yield header


def _refuse_absurd(shards: Shards, sizes: tuple[int, ...], layout: Layout) -> None:
    """A config that asks for millions of experts is not given arrays for them unless the files could hold them."""
    spec = layout.experts
    if spec and 6 * spec.count > MANY:
        needed = spec.count * spec.nbytes
        if needed > sum(sizes):
            what = f"{needed:,} bytes for {len(spec.layers)} layers of {spec.num_experts:,} experts"
            raise CheckpointError([Problem(shards.directory, "", what, f"{sum(sizes):,} bytes in {len(sizes)} shards")])


def _padding(catalogue: Catalogue) -> Iterator[Problem]:
    """`A_log` may be longer than the number of heads, but what is cut off must be zero, or it is not padding."""
    for f in catalogue.longer():
        count = f.shape[0] - f.spec.shape[0]
        start = f.offset + f.spec.nbytes
        nonzero = 0
        for at in range(0, 4 * count, BLOCK):
            tail = np.frombuffer(_read(catalogue.files[f.file], start + at, min(BLOCK, 4 * count - at)), "<f4")
            nonzero += int(np.count_nonzero(tail))  # NaN counts as well
        if nonzero:
            needed = f"zeros behind the {f.spec.shape[0]} heads"
            yield Problem(catalogue.files[f.file], f.spelling, needed, f"{nonzero} of the {count} padding values not zero")


def _second_head(catalogue: Catalogue) -> Iterator[Problem]:
    """With tied embeddings an `lm_head` is accepted only if it is the embedding again, byte for byte: then ignoring it changes nothing."""
    head, embedding = catalogue.spare_head, catalogue.found.get(EMBEDDING)
    if head is None or embedding is None:
        return
    for at in range(0, embedding.spec.nbytes, BLOCK):
        count = min(BLOCK, embedding.spec.nbytes - at)
        if _block(catalogue, head, at, count) != _block(catalogue, embedding, at, count):
            needed = "with tie_word_embeddings true no head of its own, or the embedding again"
            found = f"other values in row {_first_difference(catalogue, head, embedding, at, count):,}"
            yield Problem(catalogue.files[head.file], head.spelling, needed, found)
            return


def _block(catalogue: Catalogue, tensor: Found, at: int, count: int) -> bytes:
    return _read(catalogue.files[tensor.file], tensor.offset + at, count)


def _first_difference(catalogue: Catalogue, a: Found, b: Found, at: int, count: int) -> int:
    x, y = (np.frombuffer(_block(catalogue, t, at, count), np.uint8) for t in (a, b))
    return (at + int(np.flatnonzero(x != y)[0])) // (2 * a.shape[1])


def _read(path: Path, offset: int, count: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            data = file.read(count)
    except OSError as error:
        raise CheckpointError([Problem(path, "", "a readable file", error.strerror or str(error))]) from None
    if len(data) != count:
        raise CheckpointError([Problem(path, "", f"{count:,} bytes at {offset:,}", f"{len(data):,}")])
    return data
