"""A state in one safetensors file, whose header names the checkpoint, the position and a checksum of the data.

Written to a temporary name, synced, renamed: a killed writer leaves nothing that `load` would trust.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lilliput.errors import InputError, Problem
from lilliput.machine.output import Stamp, replacing
from lilliput.model.config import Config
from lilliput.model.state import KdaState, MlaState, State
from lilliput.weights.safetensors import Header, read_header

FORMAT = "lilliput-session-2"
DAMAGED = "The file is damaged: start the session anew."
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}

AnyArray = npt.NDArray[Any]


@dataclass(slots=True)
class Saved:
    """What a file holds: the state, ids that have not been through the model, and the logits after the last id, if known."""

    state: State
    pending: list[int]
    logits: npt.NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file in the pieces it has in memory, whose bytes follow each other: nothing large is copied."""

    dtype: str  # safetensors' name for it
    shape: tuple[int, ...]
    pieces: Sequence[AnyArray]

    @classmethod
    def of(cls, array: AnyArray) -> Tensor:
        return cls("F32" if array.dtype == np.float32 else "I64", array.shape, [array])


def save(
    path: Path,
    state: State,
    identity: str,
    *,
    pending: Sequence[int] = (),
    logits: npt.NDArray[np.float32] | None = None,
    was: Stamp | EllipsisType | None = ...,
) -> None:
    """Write `state` to `path`, replacing it only when the new file is complete on disk. `identity` names the checkpoint, `was` is as in
    `replacing`."""
    tensors = _tensors(state)
    tensors["ids"] = Tensor.of(np.array(state.ids, "<i8"))
    tensors["pending"] = Tensor.of(np.array(pending, "<i8"))
    if logits is not None:
        tensors["logits"] = Tensor.of(logits)
    about = {"format": FORMAT, "checkpoint": identity, "position": str(state.position), "checksum": checksum(tensors)}
    entries: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, tensor in tensors.items():
        nbytes = sum(piece.nbytes for piece in tensor.pieces)
        entries[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    with replacing(path, was=was) as out:
        out.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors.values():
            for piece in tensor.pieces:
                out.write(_bytes(piece))


def positions(path: Path) -> int:
    """How many tokens a saved session holds, from the header alone; what is wrong with the file is for `load` to say."""
    entries = read_header(path).entries
    return sum(entry.shape[0] for name, entry in entries.items() if name in ("ids", "pending") and entry.shape)


class _About(msgspec.Struct):
    format: str
    checkpoint: str
    position: str
    checksum: str


class _WithAbout(msgspec.Struct, rename={"about": "__metadata__"}):
    about: _About


def load(path: Path, config: Config, identity: str) -> Saved:
    """The state saved in `path`. Raises InputError when it is damaged or belongs to another checkpoint."""
    header = read_header(path)
    about = _about(path)
    if about.format != FORMAT:
        raise InputError(
            [Problem(path, "format", FORMAT, about.format[:40])], "Another version of Lilliput wrote it: start the session anew."
        )
    if about.checkpoint != identity:
        problem = Problem(path, "checkpoint", f"{identity[:16]}... (the model opened now)", f"{about.checkpoint[:16]}...")
        raise InputError([problem], "The session was saved with another checkpoint, configuration or number of layers: open that one.")
    saved, tensors = _room(header, config)
    _read(header, tensors)
    if checksum(tensors) != about.checksum:
        raise InputError([Problem(path, "checksum", about.checksum, "another")], DAMAGED)
    saved.state.ids = _ids(path, "ids", tensors, config)
    saved.pending = _ids(path, "pending", tensors, config)
    if str(saved.state.position) != about.position:
        raise InputError([Problem(path, "position", f"{saved.state.position}, the number of ids", about.position)], DAMAGED)
    return saved


def _about(path: Path) -> _About:
    with path.open("rb") as file:
        raw = file.read(struct.unpack("<Q", file.read(8))[0])
    try:
        return msgspec.json.decode(raw, type=_WithAbout).about
    except msgspec.MsgspecError as error:
        raise InputError([Problem(path, "__metadata__", "a saved session's", str(error))], "This is not a saved session.") from error


def _room(header: Header, config: Config) -> tuple[Saved, dict[str, Tensor]]:
    """What a file with this header holds, still without its values, and where those go, in the order of the file."""
    entries = header.entries

    def rows(name: str) -> int:
        return entries[name].shape[0] if name in entries and entries[name].shape else 0

    position, state = rows("ids"), State(config)
    wanted = {name: Tensor.of(np.empty(rows(name), "<i8")) for name in ("ids", "pending")} | _tensors(state, position)
    logits = np.empty(config.vocab_size, np.float32) if "logits" in entries else None
    if logits is not None:
        wanted["logits"] = Tensor.of(logits)
    for name, tensor in wanted.items():
        entry = entries.get(name)
        if entry is None or (entry.dtype, entry.shape) != (tensor.dtype, tensor.shape):
            found = "nothing" if entry is None else f"{entry.dtype} {list(entry.shape)}"
            raise InputError([Problem(header.path, name, f"{tensor.dtype} {list(tensor.shape)}", found)], DAMAGED)
    for name in entries:
        if name not in wanted:
            raise InputError([Problem(header.path, name, "no such tensor in a session", "it")], DAMAGED)
    for layer in state.layers:  # now that the file is known to have as much
        if isinstance(layer, MlaState):
            layer.reserve(position)
    wanted |= _tensors(state, position)
    return Saved(state, [], logits), {name: wanted[name] for name in entries}


def _read(header: Header, tensors: Mapping[str, Tensor]) -> None:
    with header.path.open("rb") as file:
        for name, entry in header.entries.items():
            file.seek(entry.begin)
            got = sum(file.readinto(_bytes(piece)) for piece in tensors[name].pieces)
            if got != entry.end - entry.begin:
                raise InputError([Problem(header.path, name, f"{entry.end - entry.begin:,} bytes", f"{got:,}")], DAMAGED)


def _ids(path: Path, name: str, tensors: Mapping[str, Tensor], config: Config) -> list[int]:
    (found,) = tensors[name].pieces
    wrong = found[(found < 0) | (found >= config.vocab_size)]
    if len(wrong):
        raise InputError([Problem(path, name, f"ids from 0 to {config.vocab_size - 1}", str(wrong[0]))], DAMAGED)
    return [int(i) for i in found]


def _tensors(state: State, position: int | None = None) -> dict[str, Tensor]:
    """The state's tensors at its position (or at the one it has room for), by name. They are the state's own memory."""
    position = state.position if position is None else position
    tensors = {}
    for index, layer in enumerate(state.layers):
        if isinstance(layer, KdaState):
            tensors[f"layer.{index}.s"] = Tensor.of(layer.s)
            for name, tail in zip("qkv", layer.tails, strict=True):
                tensors[f"layer.{index}.tail.{name}"] = Tensor.of(tail)
        else:
            tensors[f"layer.{index}.latents"] = Tensor("F32", (position, layer.width), layer.rows(position))
    return tensors


def _bytes(array: AnyArray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Over names, types and shapes too: two tensors of one shape could otherwise change places unseen."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in tensors.items():
        digest.update(f"{name} {DTYPES[tensor.dtype].str} {tensor.shape}\n".encode())
        for piece in tensor.pieces:
            digest.update(_bytes(piece))
    return digest.hexdigest()
