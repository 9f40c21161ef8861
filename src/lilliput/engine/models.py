"""What the word MODEL means: a checkpoint directory, or `demo`; and the small files beside its weights."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lilliput.errors import CheckpointError, Problem, UsageError
from lilliput.machine.places import expand
from lilliput.machine.small_files import read_small
from lilliput.model.config import read_config
from lilliput.synth import SIDE_FILE
from lilliput.text.tokenizer import Tokenizer

DEMO_NAME = "demo"
DEMO = Path(__file__).resolve().parent.parent / "demo"  # a small trained model of the same architecture; its README.md is its card
DEMO_SAMPLING = {"temp": 0.7, "top_k": 40}  # what its card recommends: greedily, so small a model soon repeats itself


def find_model(model: str | os.PathLike[str]) -> Path:
    """The checkpoint directory meant by `model`. Raises UsageError when there is none."""
    if is_demo(model):
        if not (DEMO / "config.json").is_file():
            raise UsageError(f"{DEMO}: needed the demo model, found nothing: this installation is not complete; install lilliput again")
        return DEMO
    directory = expand(model, "MODEL")
    try:
        found = "" if directory.is_dir() else "a file" if directory.exists() else "nothing"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise UsageError(f"{directory}: needed a checkpoint directory (or the word `demo`), found {found}")
    return directory


def is_demo(model: str | os.PathLike[str]) -> bool:
    """Is the embedded model meant? A directory of that name is `./demo`."""
    return str(model) == DEMO_NAME


def usual_sampling(model: str | os.PathLike[str]) -> dict[str, float]:
    """The sampling options `generate` takes where none are given: none (which is greedy), but for the demo those of its card."""
    return dict(DEMO_SAMPLING) if is_demo(model) else {}


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
