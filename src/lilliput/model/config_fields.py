"""Typed, named reading of a JSON object: every complaint is kept, nothing is defaulted, nothing is coerced.

A method that finds a fault records it and returns a stand-in, so that reading goes on and all faults are raised together. Stand-ins never
leave: whoever reads raises `ConfigError` if `problems` is not empty.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from lilliput.errors import ConfigError, InputError, Problem
from lilliput.machine.small_files import read_small

LARGEST_SIZE = 2**31 - 1
SMALLEST_NORMAL, LARGEST_FLOAT = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127  # float32: what the engine computes with

Json = dict[str, Any]


def read_bytes(path: Path, hint: str) -> bytes:
    """The whole of a small regular file; ConfigError names it if it is missing, unreadable or implausibly large."""
    try:
        raw = read_small(path)
    except InputError as error:
        raise ConfigError(error.problems, hint) from None
    if raw is None:
        raise ConfigError([Problem(path, "", "this file", "nothing")], hint)
    return raw


def parse_object(raw: bytes, file: object) -> Json:
    """JSON object → dict. Repeated keys, NaN, infinities and anything but an object are ConfigErrors."""
    repeated: Counter[str] = Counter()

    def pairs(found: list[tuple[str, Any]]) -> Json:
        names = Counter(name for name, _ in found)
        repeated.update({name: n for name, n in names.items() if n > 1})
        return dict(found)

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Problem(file, "", "valid JSON", _reason(error))]) from None
    names = {name: name if name.isidentifier() else show(name) for name in repeated}
    problems = [Problem(file, names[name], "this key once", f"it {n} times") for name, n in repeated.items()]
    if not isinstance(value, dict):
        problems.append(Problem(file, "", "a JSON object", show(value)))
    if problems:
        raise ConfigError(problems)
    return cast(Json, value)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"a byte that is not UTF-8 at position {error.start}"
    return "nesting too deep" if isinstance(error, RecursionError) else str(error).split("(http", 1)[0]


def show(value: object) -> str:
    """A value as a message shows it: as JSON, short, on one line, without control characters."""
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def some(numbers: Sequence[object]) -> str:
    """A list for a message: the first eight, then how many more."""
    listed = ", ".join(show(n) for n in numbers[:8])
    return listed if len(numbers) <= 8 else f"{listed} and {len(numbers) - 8} more"


_ABSENT = object()


class Fields:
    """One JSON object of a config. `where` is its path for messages, "" at the top."""

    def __init__(self, values: Json, where: str, file: object, problems: list[Problem]) -> None:
        self.values, self.where, self.file, self.problems = values, where, file, problems

    def name(self, field: str) -> str:
        field = field if field.isprintable() else show(field)
        return f"{self.where}.{field}" if self.where else field

    def complain(self, field: str, needed: str, found: str) -> None:
        self.problems.append(Problem(self.file, self.name(field), needed, found))

    def has(self, field: str) -> bool:
        """Present, and not null."""
        return self.values.get(field) is not None

    def is_sound(self, field: str) -> bool:
        """No complaint about this field so far."""
        return all(p.what != self.name(field) for p in self.problems)

    def _get(self, field: str, needed: str) -> Any:
        value = self.values.get(field, _ABSENT)
        if value is _ABSENT:
            self.complain(field, needed, "nothing (this field is required; it has no default)")
        return value

    def integer(self, field: str, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """A JSON integer in least..most; `true` and 4.0 are not integers."""
        needed = f"an integer of at least {least}" if most == LARGEST_SIZE else f"an integer in {least}..{most}"
        value = self._get(field, needed)
        if self._is_integer(value, least, most):
            return int(value)
        if value is not _ABSENT:
            self.complain(field, needed, show(value))
        return least

    @staticmethod
    def _is_integer(value: object, least: int, most: int) -> bool:
        return type(value) is int and least <= value <= most

    def integer_or_null(self, field: str, null_means: str) -> int | None:
        """As `integer` from 1 up; an explicit null (not an absent field) means None."""
        value = self._get(field, f"an integer of at least 1, or null ({null_means})")
        if value is _ABSENT or value is None:
            return None
        return self.integer(field)

    def number(self, field: str, *, negative: bool = False) -> float:
        """A finite number that is positive (or negative), and normal as a float32; integers are numbers, `true` is not."""
        needed = f"a {'negative' if negative else 'positive'} number"
        value = self._get(field, needed)
        if type(value) in (int, float):
            size = -value if negative else value
            if SMALLEST_NORMAL <= size <= LARGEST_FLOAT:
                return float(value)
        if value is not _ABSENT:
            self.complain(field, needed + " that a float32 can hold", show(value))
        return -1.0 if negative else 1.0

    def number_or_null(self, field: str, null_means: str, *, negative: bool = False) -> float | None:
        """As `number`; an explicit null (not an absent field) means None."""
        value = self._get(field, f"a number, or null ({null_means})")
        if value is _ABSENT or value is None:
            return None
        return self.number(field, negative=negative)

    def flag(self, field: str) -> bool:
        value = self._get(field, "true or false")
        if value is not _ABSENT and type(value) is not bool:
            self.complain(field, "true or false", show(value))
        return value is True

    def must_be(self, field: str, *allowed: object, why: str = "", absent_ok: bool = False) -> None:
        """The field has one of the allowed values, of the same type."""
        needed = " or ".join(map(show, allowed)) + (f" ({why})" if why else "")
        if absent_ok and field not in self.values:
            return
        value = self._get(field, needed)
        if value is not _ABSENT and not any(type(value) is type(a) and value == a for a in allowed):
            self.complain(field, needed, show(value))

    def must_be_unset(self, field: str, why: str) -> None:
        """Absent or null; anything else selects something we do not have."""
        if self.has(field):
            self.complain(field, f"null or nothing ({why})", show(self.values[field]))

    def table(self, field: str, needed: str = "an object") -> Fields | None:
        """The object under this field, or None after a complaint."""
        value = self._get(field, needed)
        if isinstance(value, dict):
            return Fields(value, self.name(field), self.file, self.problems)
        if value is not _ABSENT:
            self.complain(field, needed, show(value))
        return None

    def one_based(self, field: str, count: int) -> list[int] | None:
        """A list of distinct layer numbers 1..count; None after a complaint that leaves nothing to compare."""
        needed = f"a list of one-based layer numbers 1..{count}"
        value = self._get(field, needed)
        if not isinstance(value, list):
            if value is not _ABSENT:
                self.complain(field, needed, show(value))
            return None
        wrong = [n for n in value if type(n) is not int]
        if wrong:
            self.complain(field, needed, some(wrong))
            return None
        outside = [n for n in value if not 1 <= n <= count]
        if outside:
            self.complain(field, needed, f"{some(outside)} outside of it")
        twice = [n for n, times in Counter(value).items() if times > 1]
        if twice:
            self.complain(field, "each layer once", f"{some(twice)} more than once")
        return [n for n in dict.fromkeys(value) if 1 <= n <= count]

    def ids(self, field: str) -> tuple[int, ...]:
        """A token id, a list of them, null or nothing."""
        value = self.values.get(field)
        if value is None:
            return ()
        listed = value if isinstance(value, list) else [value]
        if not all(self._is_integer(n, 0, LARGEST_SIZE) for n in listed):
            self.complain(field, "a token id or a list of token ids", show(value))
            return ()
        return tuple(listed)
