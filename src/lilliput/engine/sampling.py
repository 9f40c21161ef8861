"""How the next token is chosen. The choice itself is made in the core; this is where options are checked and a seed is drawn."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lilliput import _core
from lilliput.errors import NumericError, UsageError, shown

MOST_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """The options of one generation, checked on creation; `UsageError` names every option that is out of range.

    `temp` 0 takes the most probable token and ignores the rest. `top_k` 0, `top_p` 1 and `min_p` 0 are off. They act in the
    order temperature, top-k, top-p, min-p, each on what the one before left. Where chance plays a part and no `seed` is given,
    one is drawn: afterwards `seed` is the number that reproduces the text, and None only when greedy.
    """

    temp: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        problems = [
            _problem("--temp", self.temp, Real, "a finite number, 0 or more", lambda x: x >= 0 and math.isfinite(x)),
            _problem("--top-p", self.top_p, Real, "a number more than 0 and at most 1", lambda x: 0 < x <= 1),
            _problem("--top-k", self.top_k, Integral, f"a whole number from 0 to {MOST_SEED}", lambda x: 0 <= x <= MOST_SEED),
            _problem("--min-p", self.min_p, Real, "a number from 0 to 1", lambda x: 0 <= x <= 1),
        ]
        if self.seed is not None:
            needed = f"a whole number from 0 to {MOST_SEED}"
            problems.append(_problem("--seed", self.seed, Integral, needed, lambda x: 0 <= x <= MOST_SEED))
        found = [p for p in problems if p]
        if found:
            raise UsageError("\n".join(found))
        if self.seed is None and not self.greedy:
            object.__setattr__(self, "seed", secrets.randbits(64))

    @property
    def greedy(self) -> bool:
        """True where the choice is the largest logit and no seed plays a part."""
        return self.temp == 0

    def choose(self, logits: NDArray[np.float32], position: int, choice: int = 0) -> int:
        """The token for absolute `position`, from logits [vocabulary]; `choice` tells apart several continuations of one prompt.

        A pure function of its arguments and these options. `NumericError` where a logit is a NaN or an infinity.
        """
        try:
            if self.greedy:
                return int(_core.argmax(logits))
            return int(
                _core.sample(
                    logits, float(self.temp), int(self.top_k), float(self.top_p), float(self.min_p), int(self.seed or 0), position, choice
                )
            )
        except ValueError as error:
            if _core.nonfinite(logits) < 0:
                raise
            raise NumericError(f"output logits at position {position}: {error}") from None


def _problem(option: str, value: Any, kind: type, needed: str, good: Callable[[Any], bool]) -> str:
    try:
        if isinstance(value, kind) and not isinstance(value, bool) and good(value):
            return ""
    except OverflowError:  # an integer too large for a float
        pass
    return f"{option}: needed {needed}, found {shown(value)}"
