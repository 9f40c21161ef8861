"""Reading fields of a request that somebody else wrote: complaints are collected, never raised on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from lilliput.errors import Problem
from lilliput.text import chat_json
from lilliput.text.chat_json import NotJsonError

SOURCE = "chat request"  # the `file` of the complaints; `what` is the field
MOST_QUOTED = 60


@dataclass(slots=True)
class Fields:
    """Takes values out of a request. A value that cannot be used leaves a complaint in `problems` and gives the empty one.

    `where` and `what` are places in the request, like `messages[2]` and `messages[2].content`.
    """

    problems: list[Problem] = field(default_factory=list)
    source: str = SOURCE

    def complain(self, what: str, needed: str, found: str) -> None:
        self.problems.append(Problem(self.source, what, needed, found))

    def text(self, what: str, value: Any) -> str:
        if not isinstance(value, str):
            self.complain(what, "text", described(value))
            return ""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = f"half of a surrogate pair, U+{ord(value[error.start]):04X}, at character {error.start + 1}"
            self.complain(what, "valid Unicode", half)
            return ""
        return value

    def optional(self, where: str, holder: Mapping[Any, Any], name: str) -> str:
        """A text that may be absent, null or empty, which all mean the same."""
        value = holder.get(name)
        return "" if value is None else self.text(f"{where}.{name}", value)

    def name(self, where: str, holder: Mapping[Any, Any]) -> str:
        """The name of a function, which must not be empty."""
        if is_empty(holder.get("name")):
            self.complain(f"{where}.name", "the function's name", found(holder, "name"))
            return ""
        return self.text(f"{where}.name", holder["name"])

    def flag(self, what: str, value: Any) -> None:
        if not isinstance(value, bool):
            self.complain(what, "true or false", described(value))

    def one_of(self, what: str, value: Any, values: tuple[str, ...]) -> str | None:
        """One of `values`, or None as given."""
        if value is None or (isinstance(value, str) and value in values):
            return value
        self.complain(what, f"one of {', '.join(values)}, or null", described(value))
        return None

    def json(self, what: str, value: Any, *, compact: bool) -> str:
        try:
            return self.text(what, chat_json.write(value, compact=compact))
        except NotJsonError as error:
            self.complain(what + shown(error.where), error.needed, error.found)
            return ""


def is_empty(value: Any) -> bool:
    """Whether a field says nothing: null, or an empty text, list or object."""
    return value is None or (isinstance(value, (str, list, tuple, Mapping)) and not value)


def is_word(value: Any, *words: str) -> TypeGuard[str]:
    """Whether `value` is one of `words`; types whose comparison has ideas of its own are none."""
    return isinstance(value, str) and value in words


def found(holder: Mapping[Any, Any], name: str) -> str:
    """What stands in a field, for a complaint."""
    return described(holder[name]) if name in holder else "nothing"


def described(value: Any) -> str:
    """A value in the words of JSON, short, with nothing in it that a terminal obeys."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return ascii(value) if len(value) <= MOST_QUOTED else f"{value[:MOST_QUOTED]!a}... ({len(value)} characters)"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, (list, tuple)) else f"a value of type {type(value).__name__}"


def shown(path: str) -> str:
    """A path or key, escaped and cut for a message."""
    plain = ascii(path)[1:-1]
    return plain if len(plain) <= MOST_QUOTED else plain[:MOST_QUOTED] + "..."
