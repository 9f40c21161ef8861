"""The packed tape on disk, as its readers see it: one file of pieces and a manifest that says what they are and whose.

docs/packed-tape.md has the format. The manifest is written last, so a directory without one holds nothing to trust.
"""

from __future__ import annotations

import errno
import shlex
from dataclasses import dataclass
from pathlib import Path

from lilliput.errors import InputError, Problem
from lilliput.machine.places import packed_directory
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.layout import Layout
from lilliput.weights.manifest import MANIFEST, PARTIAL, TAPE, Contents, Owner, read_manifest
from lilliput.weights.pieces import PieceSpec, in_place, is_held
from lilliput.weights.shards import find_shards


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed tape, opened: `pieces` in the order a pass plays them, each with its checksum.

    `files` are what a piece's `file` counts in, `sizes` their bytes. Pieces start at multiples of 4096 in the file; up to the next
    multiple it holds zeros.
    """

    directory: Path
    files: tuple[Path, ...]
    sizes: tuple[int, ...]
    pieces: list[PieceSpec]

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def bf16_nbytes(self) -> int:
        """Bytes of the same matrices as bf16 rows."""
        return sum(2 * piece.rows * piece.columns for piece in self.pieces)

    @property
    def matrices(self) -> dict[str, str]:
        """How each matrix is stored, by name: "bf16" or "k12"."""
        return {piece.name: piece.kind for piece in self.pieces}


@dataclass(frozen=True, slots=True)
class TapeSource:
    """Where a tape is read from: its pieces and the files (path, size) they lie in. `packed` is a packed tape's directory."""

    pieces: tuple[PieceSpec, ...]
    files: tuple[tuple[Path, int], ...]
    packed: Path | None

    @property
    def paths(self) -> list[Path]:
        return [path for path, _ in self.files]

    @property
    def kind(self) -> str:
        """How it is stored, as far as speed goes: of a packed tape, too, all matrices may be bf16."""
        return "k12" if any(piece.kind == "k12" for piece in self.pieces) else "bf16"


def open_packed(directory: Path) -> Packed:
    """The whole packed tape in `directory`, whomever it belongs to.

    Raises InputError for one that is absent, unfinished, truncated or of another format version, ContentError for a manifest that
    fails its own checksum. Of the pieces nothing is read: their checksums are for whoever reads them.
    """
    return _opened(directory, read_manifest(directory))


def find_packed(directory: Path, checkpoint: Checkpoint, config_hash: str, layout: Layout, given: Path | None = None) -> Packed | None:
    """The packed tape of the checkpoint in `directory`: in `given`, or else in its default place, if there is one.

    `config_hash` is the SHA-256 of config.json in hex. `layout` may have fewer layers than the checkpoint: `pieces` then has those of
    its matrices only. None where nothing was given and nothing (or an unfinished packing) is in the default place. Whatever is there
    must be right: InputError names what differs for the tape of another checkpoint, and all that `open_packed` refuses.
    """
    place = given or packed_directory(directory, checkpoint.files)
    if given is None and not _holds_manifest(place):
        return None
    contents = read_manifest(place)
    problems = differences(place, contents.owner, directory, checkpoint, config_hash)
    if problems:
        raise InputError(problems, f"this is the packed tape of another checkpoint; {_again(directory, place, given)}")
    packed = _opened(place, contents)
    of_matrix: dict[str, list[PieceSpec]] = {name: [] for name in layout.matrices()}
    for piece in packed.pieces:
        of_matrix.get(piece.name, []).append(piece)
    problems = [*_shape_differences(place, of_matrix, layout, checkpoint)]
    if problems:
        raise InputError(problems, _again(directory, place, given))
    return Packed(place, packed.files, packed.sizes, [piece for pieces in of_matrix.values() for piece in pieces])


def _holds_manifest(place: Path) -> bool:
    """Whether there is a packed tape. Raises InputError where that cannot be seen: it is not passed over in silence."""
    try:
        (place / MANIFEST).stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return False
        hint = "make it readable, remove it, or name another packed tape with `--trunk`"
        raise InputError([Problem(place, "", "a directory that can be read", error.strerror or str(error))], hint) from None
    return True


def find_tape(directory: Path, checkpoint: Checkpoint, config_hash: str, layout: Layout, given: Path | None = None) -> TapeSource:
    """The tape of the checkpoint as it will be read: packed where `find_packed` finds one, else the shards themselves."""
    packed = find_packed(directory, checkpoint, config_hash, layout, given)
    where: Packed | Checkpoint = packed or checkpoint
    pieces = packed.pieces if packed else in_place(checkpoint.tensors, layout)
    return TapeSource(tuple(pieces), tuple(zip(where.files, where.sizes, strict=True)), packed.directory if packed else None)


def differences(place: Path, owner: Owner, directory: Path, checkpoint: Checkpoint, config_hash: str) -> list[Problem]:
    """What tells the checkpoint that a tape was made from and this one apart; empty if they are the same."""
    manifest = place / MANIFEST
    problems = []
    if owner.config != config_hash:
        problems.append(
            Problem(manifest, "config.json", f"the one of {directory} (SHA-256 {config_hash[:16]}...)", f"{owner.config[:16]}...")
        )
    if owner.identity != checkpoint.identity:
        problems += _shard_differences(manifest, dict(owner.shards), dict(shards_of(directory, checkpoint)))
    return problems


def shards_of(directory: Path, checkpoint: Checkpoint) -> list[tuple[str, int]]:
    """Names, as the index has them, and sizes of the shards."""
    return list(zip(find_shards(directory).names, checkpoint.sizes, strict=True))


def _again(directory: Path, place: Path, given: Path | None) -> str:
    """The step that leads to the right tape."""
    if given is not None:
        return f"run `lilliput pack {shlex.quote(str(directory))}` and leave out `--trunk`, or name another directory"
    return f"run `rm -r {shlex.quote(str(place))}` and `lilliput pack {shlex.quote(str(directory))}`"


def _shard_differences(manifest: Path, made_from: dict[str, int], here: dict[str, int]) -> list[Problem]:
    problems = [
        Problem(manifest, name, f"{here[name]:,} bytes as here", f"made from one of {made_from[name]:,}")
        for name in sorted(here.keys() & made_from.keys())
        if here[name] != made_from[name]
    ]
    if absent := sorted(here.keys() - made_from.keys()):
        problems.append(Problem(manifest, "shards", f"`{absent[0]}` among them", f"{len(made_from)} others"))
    elif extra := sorted(made_from.keys() - here.keys()):
        problems.append(Problem(manifest, "shards", f"the {len(here)} that are here", f"`{extra[0]}` as well"))
    return problems or [Problem(manifest, "shards", "those that are here", "others")]


def _shape_differences(place: Path, of_matrix: dict[str, list[PieceSpec]], layout: Layout, checkpoint: Checkpoint) -> list[Problem]:
    problems = []
    for name, tensor in layout.matrices().items():
        (rows, columns), pieces = checkpoint.tensors[tensor].shape, of_matrix[name]
        found = (sum(p.rows for p in pieces), pieces[0].columns) if pieces else None
        if found != (rows, columns):
            what = f"{found[0]} x {found[1]}" if found else "nothing of it"
            problems.append(Problem(place / MANIFEST, name, f"{rows} x {columns}", what))
        elif is_held(name) and len(pieces) != 1:
            problems.append(Problem(place / MANIFEST, name, "one piece, because it is held whole", str(len(pieces))))
    return problems


def _opened(directory: Path, contents: Contents) -> Packed:
    tape = directory / TAPE
    try:
        size = tape.stat().st_size
    except OSError as error:
        found = "an unfinished packing" if (directory / (TAPE + PARTIAL)).exists() else error.strerror or str(error)
        raise InputError([Problem(tape, "", "the packed tape's pieces", found)], f"remove {directory} and pack again") from None
    if size != contents.nbytes:
        what = "was truncated" if size < contents.nbytes else "is longer than it should be"
        hint = f"the packed tape {what}: remove {directory} and pack again"
        raise InputError([Problem(tape, "", f"{contents.nbytes:,} bytes", f"{size:,}")], hint)
    pieces = [
        PieceSpec(m.name, row, rows, m.columns, m.kind, 0, offset, nbytes, int(checksum, 16))
        for m in contents.matrices
        for row, rows, offset, nbytes, checksum in m.pieces
    ]
    return Packed(directory, (tape,), (contents.nbytes,), pieces)


def describe(packed: Packed, number: int) -> str:
    """File, piece and matrix, for messages."""
    piece = packed.pieces[number]
    rows = f"rows {piece.row} to {piece.row + piece.rows - 1}"
    return f"{packed.files[piece.file]}: piece {number} ({piece.name}, {rows}, {piece.nbytes:,} bytes at {piece.offset:,})"
