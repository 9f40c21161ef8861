"""Which files of a directory are the checkpoint.

`model.safetensors.index.json` decides if it is there: what it names must be there, what it does not name is ignored (a second copy, a
quantized variant). All files it names are needed, those of the vision tower too: a directory is complete or it is not. Without an index, a
single safetensors file is the checkpoint, and so is a complete numbered set (`...-00001-of-00096...`); anything else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lilliput.errors import MOST_SHOWN, CheckpointError, Problem
from lilliput.machine.fetching import fetch
from lilliput.weights.shard_index import shard_names

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_NUMBERED = re.compile(r"(?P<before>.*)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})(?P<after>.*)\.safetensors")


@dataclass(frozen=True, slots=True)
class Shards:
    """The files of a checkpoint in name order. `paths` are resolved: a Hugging Face snapshot consists of links into its blobs."""

    directory: Path
    index: Path | None
    names: tuple[str, ...]
    paths: tuple[Path, ...]


def open_directory(directory: Path | str) -> Path:
    """The directory with `~` expanded; CheckpointError if it is none."""
    try:
        found = Path(directory).expanduser()
        if found.is_dir():
            return found
        what = "a file" if found.exists() else "nothing"
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no such user; ValueError: a NUL in the path
        found, what = Path(directory), getattr(error, "strerror", None) or str(error)
    raise CheckpointError([Problem(found, "", "the directory of a checkpoint", what)], _pull(found))


def find_shards(directory: Path) -> Shards:
    """The files of the checkpoint; CheckpointError with all that are missing and the command that fetches them."""
    index = directory / INDEX
    if index.is_file():
        return locate(directory, index, shard_names(index))
    if index.is_symlink() or index.exists():
        raise CheckpointError([Problem(index, "", "a file", "a link to nothing, or no file")], _pull(directory))
    return locate(directory, None, _without_index(directory))


def locate(directory: Path, index: Path | None, names: list[str]) -> Shards:
    """Shards of known names; CheckpointError with every one that is not there."""
    paths, missing = [], []
    for name in names:
        try:
            paths.append((directory / name).resolve(strict=True))
        except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
            missing.append(name)
    if missing:
        source = index or directory
        problems = [Problem(source, name, "this file beside it" if index else "this file", "nothing") for name in missing]
        if len(problems) > MOST_SHOWN:  # one problem with all names: an error shows only the first problems, and here every name counts
            problems = [Problem(source, "", f"{len(names)} shards", f"{len(missing)} of them missing: {', '.join(missing)}")]
        raise CheckpointError(problems, _pull(directory, len(missing)))
    return Shards(directory, index, tuple(names), tuple(paths))


def _without_index(directory: Path) -> list[str]:
    try:
        names = sorted(p.name for p in directory.iterdir() if p.name.endswith(".safetensors") and not p.name.startswith("."))
    except OSError as error:
        raise CheckpointError([Problem(directory, "", "a readable directory", error.strerror or str(error))]) from None
    sets = {(m["before"], m["count"], m["after"], len(m["number"])) for name in names if (m := _NUMBERED.fullmatch(name))}
    if not sets and SINGLE in names:
        return [SINGLE]
    if not sets and len(names) == 1:
        return names
    if len(sets) == 1 and SINGLE not in names:
        ((before, count, after, digits),) = sets
        if 1 <= int(count) <= 30_000:
            return [f"{before}-{n:0{digits}}-of-{count}{after}.safetensors" for n in range(1, int(count) + 1)]
    found = "no safetensors file at all"
    if names:
        found = f"{len(names)} safetensors files that are not one numbered set: {', '.join(names[:5])}"
    needed = f"`{INDEX}`, a single safetensors file, or one numbered set"
    raise CheckpointError([Problem(directory, "", needed, found)], _pull(directory))


def _pull(directory: Path, missing: int = 0) -> str:
    return fetch(directory, {0: "the checkpoint", 1: "it"}.get(missing, "them"))
