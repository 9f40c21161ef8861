"""The vocabulary of K3's message format (XTML): four markers, the names between them, how attributes are spelled.

    <|open|>TAG KEY="VALUE"...<|sep|> body <|close|>TAG<|sep|>        an element
    <|open|>message ...<|sep|> body <|close|>message<|sep|><|end_of_msg|>   a message

Rendering, checking and parsing share this page. A marker counts only as its added token; the same characters spelled with ordinary
tokens are content. No newline stands between elements.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OPEN = "<|open|>"
CLOSE = "<|close|>"
SEP = "<|sep|>"
END_OF_MSG = "<|end_of_msg|>"
MARKERS = (OPEN, CLOSE, SEP, END_OF_MSG)

MESSAGE = "message"
THINK = "think"
RESPONSE = "response"
TOOLS = "tools"
CALL = "call"
ARGUMENT = "argument"
RAW_JSON = "json"  # stands for all arguments of a call whose JSON cannot be read

ROLES = ("system", "user", "assistant", "tool")
# System messages that the format itself writes, by their `type`.
TOOL_DECLARE = "tool-declare"
THINKING_EFFORT = "thinking-effort"
TOOL_CHOICE = "tool-choice"
RESPONSE_FORMAT = "response-format"
SYSTEM_TYPES = (TOOL_DECLARE, THINKING_EFFORT, TOOL_CHOICE, RESPONSE_FORMAT)
EFFORTS = ("low", "medium", "high", "max")

_VALUE = r'(?:[^"&]|&amp;|&quot;)*'
_HEADER = re.compile(rf'([a-z]+)((?: [a-z]+="{_VALUE}")*)')
_ATTRIBUTE = re.compile(rf' ([a-z]+)="({_VALUE})"')


class Segment(NamedTuple):
    """A stretch of a prompt that is encoded on its own: the name of an added token (`special`), or ordinary text."""

    text: str
    special: bool


class Header(NamedTuple):
    """What stands between `<|open|>` and `<|sep|>`: a tag and its attributes in their order, unescaped."""

    tag: str
    attributes: tuple[tuple[str, str], ...]


def escape(value: str) -> str:
    """An attribute's value as it is written between quotes. Bodies of elements are never escaped."""
    return value.replace("&", "&amp;").replace('"', "&quot;")


def unescape(value: str) -> str:
    """The inverse of `escape`."""
    return value.replace("&quot;", '"').replace("&amp;", "&")


def parse_header(text: str) -> Header | None:
    """The tag and attributes that `text` spells, strictly as they are rendered; None if it spells none."""
    found = _HEADER.fullmatch(text)
    if found is None:
        return None
    return Header(found[1], tuple((name, unescape(value)) for name, value in _ATTRIBUTE.findall(found[2])))
