"""What Python callers hand to `encode` and to the checks: every wrong type is a complaint that names the argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from numbers import Integral
from typing import Any

from lilliput.errors import InputError
from lilliput.text.chat_fields import Fields, described
from lilliput.text.tokenizer import Tokenizer
from lilliput.text.xtml import Segment

PROMPT = "chat prompt"  # the `file` of the complaints; `what` is the argument
OUTPUT = "chat output"


def read_segments(tokenizer: Any, segments: Any) -> list[Segment]:
    """The arguments of `encode`, checked. Raises InputError with every complaint."""
    fields = Fields(source=PROMPT)
    if not isinstance(tokenizer, Tokenizer):
        fields.complain("tokenizer", "a Tokenizer", described(tokenizer))
    items = _items(fields, "segments", segments, "segments, as `render` returns them")
    for place, item in enumerate(items):
        _segment(fields, f"segments[{place}]", item, "a Segment")
    _refuse(fields)
    return items


def read_emitted(emitted: Any, tokenizer: Any, **flags: Any) -> str | list[Any]:
    """The arguments of a check: a text, or a list of segments and ids. Raises InputError with every complaint."""
    fields = Fields(source=OUTPUT)
    if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
        fields.complain("tokenizer", "a Tokenizer, or null", described(tokenizer))
    for name, value in flags.items():
        fields.flag(name, value)
    read = emitted if isinstance(emitted, str) else _items(fields, "emitted", emitted, "text, or a list of segments or token ids")
    for place, item in enumerate(read if isinstance(read, list) else []):
        if not isinstance(item, Integral) or isinstance(item, bool):
            _segment(fields, f"emitted[{place}]", item, "a Segment or a token id")
    _refuse(fields)
    return read


def _items(fields: Fields, what: str, value: Any, needed: str) -> list[Any]:
    """Any iterable that has an order and does not consist of characters or bytes."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview, Mapping, Set)):
        with suppress(TypeError):  # an array without dimensions calls itself iterable, and is not
            return list(value)
    fields.complain(what, needed, described(value))
    return []


def _segment(fields: Fields, what: str, value: Any, needed: str) -> None:
    if not isinstance(value, Segment):
        fields.complain(what, needed, described(value))
        return
    if not isinstance(value.text, str):
        fields.complain(f"{what}.text", "text", described(value.text))
    fields.flag(f"{what}.special", value.special)


def _refuse(fields: Fields) -> None:
    if fields.problems:
        raise InputError(fields.problems)
