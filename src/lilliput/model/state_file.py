"""A state in one safetensors file, whose header names the checkpoint, the position and a checksum of the data.

Written to a temporary name, synced, renamed: a killed writer leaves nothing that `load` would trust.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from lilliput.errors import InputError, Problem
from lilliput.machine.output import replacing
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


def save(path: Path, state: State, identity: str, *, pending: Sequence[int] = (), logits: npt.NDArray[np.float32] | None = None) -> None:
    """Write `state` to `path`, replacing it only when the new file is complete on disk. `identity` names the checkpoint."""
    tensors = dict(_tensors(state))
    tensors["ids"] = np.array(state.ids, "<i8")
    tensors["pending"] = np.array(pending, "<i8")
    if logits is not None:
        tensors["logits"] = logits
    about = {"format": FORMAT, "checkpoint": identity, "position": str(state.position), "checksum": _checksum(tensors)}
    entries: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, array in tensors.items():
        dtype = "F32" if array.dtype == np.float32 else "I64"
        entries[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    with replacing(path) as out:
        out.write(struct.pack("<Q", len(header)) + header)
        for array in tensors.values():
            out.write(_bytes(array))


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
    tensors = _read(header)
    if _checksum(tensors) != about.checksum:
        raise InputError([Problem(path, "checksum", about.checksum, "another")], DAMAGED)
    saved = _rebuild(path, config, tensors)
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


def _read(header: Header) -> dict[str, AnyArray]:
    tensors: dict[str, AnyArray] = {}
    with header.path.open("rb") as file:
        for name, entry in header.entries.items():
            dtype = DTYPES.get(entry.dtype)
            if dtype is None:
                raise InputError([Problem(header.path, name, "F32 or I64", entry.dtype)])
            file.seek(entry.begin)
            raw = bytearray(file.read(entry.end - entry.begin))
            if len(raw) != entry.end - entry.begin:
                raise InputError([Problem(header.path, name, f"{entry.end - entry.begin:,} bytes", f"{len(raw):,}")], DAMAGED)
            tensors[name] = np.frombuffer(raw, dtype).reshape(entry.shape)
    return tensors


def _tensors(state: State) -> Iterator[tuple[str, AnyArray]]:
    for index, layer in enumerate(state.layers):
        if isinstance(layer, KdaState):
            yield f"layer.{index}.s", layer.s
            for name, tail in zip("qkv", layer.tails, strict=True):
                yield f"layer.{index}.tail.{name}", tail
        else:
            yield f"layer.{index}.latents", layer.rows(state.position)


def _rebuild(path: Path, config: Config, tensors: dict[str, AnyArray]) -> Saved:
    left = dict(tensors)

    def take(name: str, shape: tuple[int, ...], dtype: str = "F32") -> AnyArray:
        array = left.pop(name, None)
        if array is None or array.shape != shape or array.dtype != DTYPES[dtype]:
            found = "nothing" if array is None else f"{array.dtype} {list(array.shape)}"
            raise InputError([Problem(path, name, f"{DTYPES[dtype]} {list(shape)}", found)], DAMAGED)
        return array

    def ids(name: str) -> list[int]:
        found = take(name, (tensors[name].size,) if name in tensors else (0,), "I64")
        wrong = found[(found < 0) | (found >= config.vocab_size)]
        if len(wrong):
            raise InputError([Problem(path, name, f"ids from 0 to {config.vocab_size - 1}", str(wrong[0]))], DAMAGED)
        return [int(i) for i in found]

    state = State(config)
    state.ids = ids("ids")
    for index, layer in enumerate(state.layers):
        if isinstance(layer, KdaState):
            layer.s = take(f"layer.{index}.s", layer.s.shape)
            layer.tails = [take(f"layer.{index}.tail.{n}", tail.shape) for n, tail in zip("qkv", layer.tails, strict=True)]
        else:
            assert isinstance(layer, MlaState)
            layer.write(0, take(f"layer.{index}.latents", (state.position, layer.width)))
    logits = take("logits", (config.vocab_size,)) if "logits" in tensors else None
    saved = Saved(state, ids("pending"), logits)
    if left:
        raise InputError([Problem(path, next(iter(left)), "no such tensor in a session", "it")], DAMAGED)
    return saved


def _bytes(array: AnyArray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _checksum(tensors: Mapping[str, AnyArray]) -> str:
    """Over names, types and shapes too: two tensors of one shape could otherwise change places unseen."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in tensors.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(_bytes(array))
    return digest.hexdigest()
