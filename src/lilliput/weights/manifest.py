"""The manifest of a packed tape: what it holds, its checkpoint, its own checksum. docs/packed-tape.md has the format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from lilliput import _core
from lilliput.errors import ContentError, InputError, Problem
from lilliput.machine.small_files import read_small
from lilliput.weights.direct import Bytes

FORMAT, VERSION = "lilliput packed tape", 1
TAPE, MANIFEST, JOURNAL = "tape.k12", "tape.json", "tape.journal"
PARTIAL = ".partial"
ALIGNMENT = 4096  # bytes; where pieces start
LARGEST = 64 << 20  # bytes of a manifest; the release's has 1.5 MB
MOST_COLUMNS = 1 << 22  # what an escape of K12 can address

PieceLine = tuple[int, int, int, int, str]  # first row, rows, offset, nbytes, checksum in hex


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint a tape was made from: SHA-256 of its config.json, `Checkpoint.identity`, and the shards' names and bytes."""

    config: str
    identity: str
    shards: tuple[tuple[str, int], ...]


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the packer was asked for. `forced`: K12 even where bf16 rows are smaller."""

    piece_bytes: int
    forced: bool


class PackedMatrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rows: int
    columns: int
    kind: str
    pieces: tuple[PieceLine, ...]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`nbytes` is the size of the tape's file; `matrices` are in the order of the tape."""

    owner: Owner
    parameters: Parameters
    nbytes: int
    matrices: tuple[PackedMatrix, ...]


class _Versioned(msgspec.Struct):
    format: str
    version: int


class _Envelope(msgspec.Struct):
    checksum: str
    contents: msgspec.Raw


def checksum_of(data: bytes | Bytes) -> str:
    """The checksum of bytes, as manifest and journal write it."""
    return f"{_core.checksum(np.frombuffer(data, np.uint8)):016x}"


def manifest_bytes(contents: Contents) -> bytes:
    raw = msgspec.json.encode(contents)
    envelope = {"format": FORMAT, "version": VERSION, "checksum": checksum_of(raw), "contents": msgspec.Raw(raw)}
    return msgspec.json.encode(envelope) + b"\n"


def read_manifest(directory: Path) -> Contents:
    """InputError for one that is absent, of another version or malformed; ContentError for one that fails its checksum."""
    path = directory / MANIFEST
    raw = read_small(path, LARGEST)
    if raw is None:
        unfinished = (directory / (TAPE + PARTIAL)).exists()
        found = "an unfinished packing" if unfinished else "nothing"
        hint = "run the same `lilliput pack` again to finish it" if unfinished else "run `lilliput pack MODEL -o DIR` to make one"
        raise InputError([Problem(path, "", "the manifest of a packed tape", found)], hint)
    hint = f"remove {directory} and pack again"
    try:
        versioned = msgspec.json.decode(raw, type=_Versioned)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ContentError(f"{path}: needed the manifest of a packed tape, found no such thing ({error}); {hint}") from None
    if (versioned.format, versioned.version) != (FORMAT, VERSION):
        needed, found = f"`{FORMAT}`, version {VERSION}", f"`{versioned.format}`, version {versioned.version}"
        raise InputError([Problem(path, "format", needed, found)], f"made by another Lilliput; {hint}")
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        if (found := checksum_of(bytes(envelope.contents))) != envelope.checksum:
            raise ContentError(f"{path}: needed the checksum {envelope.checksum}, found {found}; the manifest is damaged: {hint}")
        contents = msgspec.json.decode(envelope.contents, type=Contents)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ContentError(f"{path}: needed the manifest of a packed tape, found a malformed one ({error}); {hint}") from None
    if problems := [*_inconsistencies(path, contents)]:
        raise InputError(problems, hint)
    return contents


def k12_bytes(rows: int, columns: int) -> int:
    """Bytes of a K12 piece without escapes (docs/arithmetic.md)."""
    quads, blocks = -(-rows // 4), -(-columns // 128)
    return quads * blocks * 4 * 192 + 16 + 4 * (quads + 1)


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _inconsistencies(path: Path, contents: Contents) -> Iterator[Problem]:
    """A manifest of the right checksum may still be somebody's invention: no reader should have to doubt offsets and lengths."""
    at = 0
    names: set[str] = set()
    for m in contents.matrices:
        row = 0
        if m.name in names:
            yield Problem(path, m.name, "this matrix once", "it again")
        names.add(m.name)
        if m.kind not in ("bf16", "k12"):
            yield Problem(path, m.name, "bf16 or k12", repr(m.kind))
        if not 1 <= m.columns <= MOST_COLUMNS and (m.kind != "bf16" or m.columns < 1):
            yield Problem(path, m.name, f"1 to {MOST_COLUMNS} columns", str(m.columns))
        for first, rows, offset, nbytes, checksum in m.pieces:
            if first != row or rows < 1 or offset != at:
                yield Problem(path, m.name, f"a piece from row {row} on at {at}", f"{rows} rows from {first} on at {offset}")
            least = 2 * rows * m.columns if m.kind == "bf16" else k12_bytes(rows, m.columns)
            escapes = nbytes - least
            if escapes < 0 or escapes > (0 if m.kind == "bf16" else 4 * rows * m.columns) or escapes % 4:
                yield Problem(path, f"{m.name}, row {first}", f"{least} bytes and escapes of {m.kind}", str(nbytes))
            if len(checksum) != 16 or not set(checksum) <= set("0123456789abcdef"):
                yield Problem(path, f"{m.name}, row {first}", "a checksum of 16 hexadecimal digits", repr(checksum))
            row, at = first + rows, offset + aligned(nbytes)
        if row != m.rows:
            yield Problem(path, m.name, f"pieces of {m.rows} rows", f"of {row}")
    if at != contents.nbytes:
        yield Problem(path, "nbytes", f"{at:,}, the end of the last piece", f"{contents.nbytes:,}")
