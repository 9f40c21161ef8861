"""JSON for prompts: read with every number's spelling kept, written as the format wants it.

The standard library turns `1e2` into 100.0, lets the last of two equal keys win and reads `NaN`; the first changes what the model sees,
the others lose or invent something. So reading goes through its hooks, and writing is done here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

KINDS = ("string", "number", "boolean", "null", "object", "array")
MOST_NESTED = 256  # lists and objects inside each other: enough for any schema, and safe on any stack
MOST_BITS = 10_000  # of an integer: Python itself refuses to spell one of 4,300 digits


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a JSON text, spelled as there."""

    spelling: str


class NotJsonError(ValueError):
    """A value that JSON has no form for, or a text that breaks a rule we insist on: `where` in it, `needed`, `found`."""

    def __init__(self, where: str, needed: str, found: str) -> None:
        super().__init__(f"{where or 'the value'}: needed {needed}, found {found}")
        self.where, self.needed, self.found = where, needed, found


def parse(text: str) -> Any:
    """The value of a JSON text; numbers become `Number`.

    Raises NotJsonError for a key that stands twice in one object or for nesting beyond MOST_NESTED, and another ValueError for text that
    is no JSON (`NaN` and `Infinity` are none).
    """
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            repeated.extend(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        return entries

    try:
        value = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse, object_pairs_hook=unique)
    except RecursionError:
        raise _too_deep("") from None
    if repeated:
        raise NotJsonError("", "every key once in its object", f"{repeated[0][:40]!a} twice or more")
    _check_depth(value)
    return value


def kind(value: Any) -> str:
    """The JSON type of a value, as an `argument` names it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float, Number)):
        return "number"
    return "object" if isinstance(value, Mapping) else "array"


def write(value: Any, *, compact: bool) -> str:
    """JSON of `value` with non-ASCII characters as they are.

    `compact`: no spaces, every object sorted by key. Otherwise `, ` and `: `, and the order of the keys is kept.
    Raises NotJsonError for anything that is no JSON value: a key that is no string, infinities, sets, nesting beyond MOST_NESTED.
    """
    return _write(value, compact, "", 0)


def _write(value: Any, compact: bool, where: str, depth: int) -> str:
    if depth > MOST_NESTED:
        raise _too_deep(where)
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Number):
        return value.spelling
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise NotJsonError(where, f"an integer of at most {MOST_BITS} bits", f"one of {value.bit_length()}")
        return int.__repr__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJsonError(where, "a finite number", float.__repr__(value))
        return float.__repr__(value)
    comma, colon = (",", ":") if compact else (", ", ": ")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise NotJsonError(where, "strings as keys", f"one of type {type(key).__name__}")
        keys = sorted(value) if compact else value
        entries = (json.dumps(key, ensure_ascii=False) + colon + _write(value[key], compact, f"{where}.{key}", depth + 1) for key in keys)
        return "{" + comma.join(entries) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + comma.join(_write(item, compact, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)) + "]"
    raise NotJsonError(where, "a JSON value", type(value).__name__)


def _check_depth(value: Any) -> None:
    """Without recursion: the library reads deeper than the rest of the program could follow."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        holders = [item for item in level if isinstance(item, (dict, list))]
        level = [item for holder in holders for item in (holder.values() if isinstance(holder, dict) else holder)]
    if level:
        raise _too_deep("")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _too_deep(where: str) -> NotJsonError:
    return NotJsonError(where, f"at most {MOST_NESTED} lists and objects inside each other", "more")
