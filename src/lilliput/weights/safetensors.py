"""A strict reader of safetensors headers: what is where in a file, and nothing is believed without a check.

The file is eight bytes of little-endian header length, a JSON object, then the data. The JSON comes from strangers and decides what will
be read as weights, so it must hold together: every name once, known dtypes, shape x item size = bytes, and tensors that cover the data
exactly, without overlap, gap or rest. Only the header is read, never the data. A fault is a `CheckpointError`: file, tensor, needed, found.

Half a million entries have to pass in a second, so there are two ways through: msgspec into typed entries, checked as numpy arrays, and,
only where that finds anything odd, a slow one that looks at each entry and says what is wrong (`safetensors_faults.py`).
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from lilliput.errors import CheckpointError, Problem
from lilliput.weights import safetensors_faults as faults

LARGEST_HEADER = 100_000_000  # the format's own limit; the released headers have 0.8 MB


class Entry(NamedTuple):
    """One tensor of a file; `begin` and `end` are absolute file offsets in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """All tensors of one file as parallel arrays, in the order of the header.

    `kinds` are the distinct (dtype, shape) pairs and `kind[i]` is the index of tensor i in them; `begin` and `end` are absolute file
    offsets (int64). `entries` is the same as a dictionary, made anew at each call.
    """

    path: Path
    size: int  # of the file, bytes
    data_start: int
    names: tuple[str, ...]
    kinds: tuple[tuple[str, tuple[int, ...]], ...]
    kind: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    @property
    def entries(self) -> dict[str, Entry]:
        kinds = (self.kinds[k] for k in self.kind.tolist())
        return {
            name: Entry(dtype, shape, begin, end)
            for name, (dtype, shape), begin, end in zip(self.names, kinds, self.begin.tolist(), self.end.tolist(), strict=True)
        }


def read_header(path: Path) -> Header:
    """The checked header of one safetensors file; CheckpointError with every fault found in it."""
    raw, size = _read_raw(path)
    tensors = _decode(raw) or _as_tensors(faults.decode(raw, path))
    return _arrange(path, size, 8 + len(raw), tensors)


def _read_raw(path: Path) -> tuple[bytes, int]:
    """(header bytes, file size). Nothing is read or allocated beyond what the file really has."""

    def refuse(what: str, needed: str, found: str) -> CheckpointError:
        return CheckpointError([Problem(path, what, needed, found)])

    try:
        if not stat.S_ISREG(path.stat().st_mode):  # before opening it: opening a pipe would wait for its writer
            raise refuse("", "a regular file", "something else")
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(8)
            if len(head) < 8:
                raise refuse("", "a safetensors file (at least 8 bytes)", f"{size} bytes")
            length = int.from_bytes(head, "little")
            if length > min(size - 8, LARGEST_HEADER):
                limit = f"at most {size - 8:,} (the file has {size:,} bytes)" if length > size - 8 else f"at most {LARGEST_HEADER:,}"
                raise refuse("header length", limit, f"{length:,}{_looks_like(head + file.read(72))}")
            start = file.read(min(length, 4096))
            if not start.lstrip(b" \t\r\n").startswith(b"{"):
                raise refuse("header", "a JSON object", f"{start[:40]!r}" if start else "nothing")
            parts = [start]
            rest = length - len(start)
            while rest and (part := file.read(rest)):
                parts.append(part)
                rest -= len(part)
            if rest:
                raise refuse("header", f"{length:,} bytes", f"the end of the file after {length - rest:,}")
            return b"".join(parts), size
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise refuse("", "a readable file", getattr(error, "strerror", None) or str(error)) from None


def _looks_like(start: bytes) -> str:
    """A hint where text (an error page, a git-lfs pointer) was saved in place of the shard."""
    text = start.decode("ascii", "replace")
    readable = len(text) >= 8 and all(c.isprintable() or c in "\r\n\t" for c in text) and "\ufffd" not in text
    return f"; the file is text that begins with {text!r}" if readable else ""


_Size = Annotated[int, msgspec.Meta(ge=0, le=faults.LARGEST)]


class _Typed(msgspec.Struct, gc=False):
    """One entry as msgspec decodes it. None stands for an absent field; `__metadata__` passes as an entry without fields."""

    dtype: Literal[tuple(faults.DTYPES)] | None = None  # type: ignore[valid-type]  # mypy wants the names spelled out
    shape: tuple[_Size, ...] | None = None
    data_offsets: tuple[_Size, _Size] | None = None


class _Metadata(msgspec.Struct, rename={"value": "__metadata__"}):
    value: msgspec.Raw


_decoder = msgspec.json.Decoder(dict[str, _Typed | None])
_metadata_decoder = msgspec.json.Decoder(_Metadata)


class _Tensors(NamedTuple):
    """What a header says, as parallel lists: names, (dtype, shape), data_offsets."""

    names: tuple[str, ...]
    kinds: list[tuple[str, tuple[int, ...]]]
    offsets: list[tuple[int, int]]


def _decode(raw: bytes) -> _Tensors | None:
    """The quick way: None where anything is not exactly as expected, so that the slow way can say what."""
    try:
        found = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    # Four keys an entry, so four colons, and not one more: whatever stands there twice (a dictionary shows only the last) has one too many.
    colons = 4 * len(found)
    if "__metadata__" in found:
        del found["__metadata__"]
        colons += bytes(_metadata_decoder.decode(raw).value).count(b":") + 1 - 4
    entries = found.values()
    if raw.count(b":") != colons or None in entries:
        return None
    kinds = [(e.dtype, e.shape) for e in entries]  # type: ignore[union-attr]
    offsets = [e.data_offsets for e in entries]  # type: ignore[union-attr]
    if None in offsets or any(None in kind for kind in set(kinds)):
        return None
    return _Tensors(tuple(found), kinds, offsets)  # type: ignore[arg-type]


def _as_tensors(entries: dict[str, faults.Raw]) -> _Tensors:
    return _Tensors(tuple(entries), [(e[0], e[1]) for e in entries.values()], [e[2] for e in entries.values()])


def _arrange(path: Path, size: int, data_start: int, tensors: _Tensors) -> Header:
    """Arrays from entries, once sizes and ranges hold together."""
    count = len(tensors.names)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tensors.kinds))}
    kind = np.fromiter(map(kinds.__getitem__, tensors.kinds), np.int64, count)
    offsets = np.fromiter(chain.from_iterable(tensors.offsets), np.int64, 2 * count).reshape(-1, 2)
    begin, end = offsets[:, 0], offsets[:, 1]
    sizes = np.array([faults.byte_size(*k) for k in kinds], np.int64)  # -1 where there is none
    data = size - data_start
    if np.any(sizes[kind] < 0) or np.any(end - begin != sizes[kind]) or not _covers(begin, end, data):
        raise CheckpointError(faults.explain(path, zip(*tensors, strict=True), data))
    return Header(path, size, data_start, tensors.names, tuple(kinds), kind, begin + data_start, end + data_start)


def _covers(begin: NDArray[np.int64], end: NDArray[np.int64], data: int) -> bool:
    """The tensors that have bytes cover 0..data exactly, each byte once; those without lie anywhere in it."""
    if np.any(end > data):
        return False
    some = end > begin
    begin, end = begin[some], end[some]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    edges = np.concatenate(([0], end)), np.concatenate((begin, [data]))
    return bool(np.array_equal(*edges))
