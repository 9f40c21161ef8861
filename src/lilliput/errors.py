"""Everything that can go wrong, and the exit code each kind ends in.

    LilliputError                  1  failed while running (I/O, a vanished or replaced file)
    ├── NumericError               1  a NaN or an infinity in a router or output logit
    ├── ToleranceError             1  `compare` found a difference beyond the tolerance
    ├── UsageError                 2  an option, a request or the environment
    │   └── MissingExtraError      2  a feature whose optional packages are not installed
    ├── InputError                 2  a file that was given to us is missing or malformed
    │   ├── CheckpointError        2  safetensors, index, missing shards
    │   ├── ConfigError            2  config.json, generation_config.json
    │   └── TokenizerError         2  tiktoken.model, tokenizer_config.json
    ├── DoesNotFitError            3  memory, disk, context
    └── ContentError               4  content failed its check: do not use the output

The command line turns these into one message and the exit code, at its edge only.
"""

from __future__ import annotations

from collections.abc import Sequence


class LilliputError(Exception):
    """Base of every error Lilliput raises on purpose."""

    exit_code = 1


class NumericError(LilliputError):
    """A NaN or an infinity where a finite number is needed; the message names the layer."""


class ToleranceError(LilliputError):
    """Two arrays differ by more than the tolerance allows."""


class UsageError(LilliputError):
    """An option, an argument or an environment variable has a value we cannot use."""

    exit_code = 2


class MissingExtraError(UsageError):
    """An optional feature was asked for and its packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs the extra `{extra}`: run `pip install 'lilliput[{extra}]'`")


class Problem:
    """One complaint about a foreign file: which file, which thing in it, what was needed, what was found."""

    __slots__ = ("file", "found", "needed", "what")

    def __init__(self, file: object, what: str, needed: str, found: str) -> None:
        self.file, self.what, self.needed, self.found = str(file), what, needed, found

    def __str__(self) -> str:
        where = f"{self.file}: {self.what}" if self.what else self.file
        return f"{where}: needed {self.needed}, found {self.found}"

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"


MOST_SHOWN = 20
LONGEST_VALUE = 80  # characters


def shown(value: object) -> str:
    """A value as a message quotes it, however long it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "..."


class InputError(LilliputError):
    """A file we were given is missing or malformed. Holds every complaint, raised once.

    `problems` has them all; the message shows the first twenty. `hint` is the command or the step that mends it.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[Problem], hint: str = "") -> None:
        self.problems = tuple(problems)
        self.hint = hint
        lines = [str(p) for p in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            lines.append(f"... and {len(self.problems) - MOST_SHOWN} more")
        if hint:
            lines.append(hint)
        super().__init__("\n".join(lines))

    @property
    def file(self) -> str:
        return self.problems[0].file

    @property
    def what(self) -> str:
        return self.problems[0].what

    @property
    def needed(self) -> str:
        return self.problems[0].needed

    @property
    def found(self) -> str:
        return self.problems[0].found


class CheckpointError(InputError):
    """A safetensors file or the index is malformed, or shards are missing; `what` is the tensor's name."""


class ConfigError(InputError):
    """config.json or generation_config.json cannot be run exactly; `what` is the field."""


class TokenizerError(InputError):
    """tiktoken.model or tokenizer_config.json cannot be used."""


class DoesNotFitError(LilliputError):
    """Memory, disk or context is not enough; the message has the shortfall and what would fit."""

    exit_code = 3


class ContentError(LilliputError):
    """Content failed its check; nothing computed from it is to be used."""

    exit_code = 4
