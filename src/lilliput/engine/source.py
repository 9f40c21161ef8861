"""A checkpoint found and checked, before any memory is given to it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral

from lilliput.engine.models import find_model, usable_ids
from lilliput.errors import UsageError, shown
from lilliput.model.config import Config, eos_ids, read_hashed_config
from lilliput.model.layout import layout
from lilliput.text.tokenizer import Tokenizer
from lilliput.weights.checkpoint import Checkpoint

MOST_TOKENS = 10**9  # of one run: with any prompt below the contexts that can be planned


class Source:
    """What is known of a model without its weights: configuration, tokenizer, and where every tensor lies.

    `layers` cuts the model after its first so many layers. Raises InputError for a checkpoint that cannot be run exactly, UsageError
    when there is none.
    """

    def __init__(self, model: str | os.PathLike[str], *, layers: int | None = None) -> None:
        self.directory = find_model(model)
        whole, self.config_hash = read_hashed_config(self.directory)
        self.checkpoint = Checkpoint.open(self.directory, layout(whole))
        self.config = first_layers(whole, layers)
        self.layout = layout(self.config)
        self.tokenizer = Tokenizer.open(self.directory, whole.vocab_size)
        self.eos_ids = frozenset(eos_ids(self.directory, whole))
        self.usable_ids = usable_ids(self.directory, whole.vocab_size)
        self.identity = hashlib.sha256(f"{self.config_hash} {self.checkpoint.identity} {self.config.num_layers}".encode()).hexdigest()

    def encode(self, text: str, *, allow_special: bool = False, most: int | None = None) -> list[int]:
        """Text → ids; a UsageError without `tiktoken.model`, and for what is no text. DoesNotFitError for more than `most`, before all
        are there."""
        if self.tokenizer is None:
            raise UsageError(f"{self.directory} has no tiktoken.model, so text cannot be read: give token ids (`--ids 1,2,3`)")
        return self.tokenizer.encode(text, allow_special=allow_special, most=most)

    def check_ids(self, ids: Iterable[int]) -> list[int]:
        """Ids (a numpy vector, too) as plain integers. Raises UsageError for what is none, or one the text model has no row for."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise UsageError(f"needed token ids, found {type(ids).__name__}")
        listed = list(ids)
        for i in listed:
            if not isinstance(i, Integral) or isinstance(i, bool):
                raise UsageError(f"token id {shown(i)}: needed a whole number, found {type(i).__name__}")
            if not 0 <= i < self.config.vocab_size:
                raise UsageError(f"token id {shown(int(i))}: needed 0 to {self.config.vocab_size - 1}, because the vocabulary ends there")
            if i in self.config.media_ids:
                raise UsageError(f"token id {i} stands for an image, and this engine runs text only: leave it out")
        return [int(i) for i in listed]


def check_whole(option: str, value: object, least: int, most: int | None = None) -> None:
    """Raises UsageError unless `value` is a whole number in the range."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= (int(value) if most is None else most):  # type: ignore[call-overload]
        needed = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{option}: needed {needed}, found {shown(value)}")


def check_max_tokens(value: object, option: str = "--max-tokens") -> None:
    """Raises UsageError unless so many tokens can be asked for."""
    check_whole(option, value, 1, MOST_TOKENS)


def first_layers(config: Config, layers: int | None) -> Config:
    """The same model cut after its first `layers` layers."""
    if layers is None:
        return config
    check_whole("--layers", layers, 1, config.num_layers)
    return replace(config, num_layers=layers, is_kda=config.is_kda[:layers])
