"""What the word MODEL means: a checkpoint directory, or `demo`; and the small files beside its weights."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from lilliput.errors import CheckpointError, Problem, UsageError
from lilliput.machine.places import cache_directory, expand
from lilliput.machine.small_files import read_small
from lilliput.model.config import read_config
from lilliput.synth import SIDE_FILE, write_synthetic
from lilliput.text.tokenizer import Tokenizer

DEMO_NOTE = "`demo` is a synthetic model with random weights: it shows the machinery, not language"


def find_model(model: str | os.PathLike[str]) -> Path:
    """The checkpoint directory meant by `model`. Raises UsageError when there is none."""
    if str(model) == "demo":
        return _demo()
    directory = expand(model, "MODEL")
    try:
        found = "" if directory.is_dir() else "a file" if directory.exists() else "nothing"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise UsageError(f"{directory}: needed a checkpoint directory (or the word `demo`), found {found}")
    return directory


def _demo() -> Path:
    directory = cache_directory() / "demo-synthetic-tiny"
    try:
        if not (directory / "config.json").exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            with directory.with_suffix(".lock").open("w") as lock:  # processes that start together: one writes, the others wait
                with suppress(OSError):  # a network file system without locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                if not (directory / "config.json").exists():
                    write_synthetic(directory, "tiny")
    except OSError as error:
        hint = "set LILLIPUT_CACHE to a directory that can be written"
        raise UsageError(f"{directory}: the demo model cannot be written: {error.strerror}; {hint}") from error
    return directory


def open_tokenizer(model: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a checkpoint, without its weights. Raises UsageError where it has none."""
    directory = find_model(model)
    tokenizer = Tokenizer.open(directory, read_config(directory).vocab_size)
    if tokenizer is None:
        raise UsageError(f"{directory} has no tiktoken.model: needed for text; it comes with the checkpoint")
    return tokenizer


class _SynthFile(msgspec.Struct):
    usable_ids: int


def usable_ids(directory: Path, vocab_size: int) -> int | None:
    """How many embedding rows of a sparse synthetic checkpoint are real; None for every other checkpoint."""
    path = directory / SIDE_FILE
    raw = read_small(path)
    if raw is None:
        return None
    try:
        usable = msgspec.json.decode(raw, type=_SynthFile).usable_ids
        found = str(usable)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        usable, found = 0, str(error)
    if not 1 <= usable <= vocab_size:
        raise CheckpointError([Problem(path, "usable_ids", f"a number of ids from 1 to vocab_size, {vocab_size}", found)])
    return usable
