"""A model's output as markers and the text between them, whichever form it comes in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from lilliput.errors import UsageError
from lilliput.text.chat_fields import described
from lilliput.text.xtml import MARKERS, Segment

if TYPE_CHECKING:
    from lilliput.text.tokenizer import Tokenizer

Emitted = str | Sequence[Segment] | Sequence[int]

_MARKER = re.compile("|".join(map(re.escape, MARKERS)))


class Fault(NamedTuple):
    """One deviation from the format. `position` counts what was checked: ids, segments, or the characters of a text."""

    position: int
    needed: str
    found: str

    def __str__(self) -> str:
        return f"at {self.position}: needed {self.needed}, found {self.found}"


class Piece(NamedTuple):
    """A marker, all ordinary text up to the next one, something that has no place in a message (`alien`), or the end.

    `position` as in `Fault`; of a text it is that of its beginning.
    """

    position: int
    text: str
    kind: str

    def __str__(self) -> str:
        return described(self.text) if self.kind == "text" else self.text


def pieces_of(emitted: Emitted, tokenizer: Tokenizer | None, faults: list[Fault]) -> Iterator[Piece]:
    """Take ids, segments or a text apart; no piece is empty and no two texts are neighbours.

    In a text the names of the markers are taken for the markers. Bytes that are no UTF-8 become U+FFFD and a fault. Raises UsageError for
    ids without a tokenizer.
    """
    return _of_text(emitted) if isinstance(emitted, str) else _of_items(emitted, tokenizer, faults)


def _of_text(text: str) -> Iterator[Piece]:
    at = 0
    for found in _MARKER.finditer(text):
        if found.start() > at:
            yield Piece(at, text[at : found.start()], "text")
        yield Piece(found.start(), found.group(), "marker")
        at = found.end()
    if at < len(text):
        yield Piece(at, text[at:], "text")


def _of_items(items: Sequence[Segment | int], tokenizer: Tokenizer | None, faults: list[Fault]) -> Iterator[Piece]:
    """Joins what lies between markers: a character may be spread over tokens."""
    held: list[bytes] = []
    start = 0
    for position, item in enumerate(items):
        raw, kind = _of_segment(item) if isinstance(item, Segment) else _of_id(item, tokenizer)
        if kind == "text":
            start = start if held else position
            held.append(raw)
            continue
        yield from _joined(start, held, faults)
        held = []
        yield Piece(position, raw.decode(), kind)
    yield from _joined(start, held, faults)


def _joined(start: int, held: list[bytes], faults: list[Fault]) -> Iterator[Piece]:
    raw = b"".join(held)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode("utf-8", "replace")
        ends = accumulate(map(len, held))
        position = start + next(place for place, end in enumerate(ends) if error.start < end)
        faults.append(Fault(position, "text in UTF-8", f"the byte 0x{raw[error.start]:02X}"))
    if text:
        yield Piece(start, text, "text")


def _of_segment(segment: Segment) -> tuple[bytes, str]:
    kind = "text" if not segment.special else "marker" if segment.text in MARKERS else "alien"
    return segment.text.encode("utf-8", "surrogatepass"), kind


def _of_id(token: int, tokenizer: Tokenizer | None) -> tuple[bytes, str]:
    if tokenizer is None:
        raise UsageError("token ids can only be checked with their tokenizer")
    if not 0 <= token < tokenizer.vocab_size:
        return f"id {token}, which the vocabulary does not have".encode(), "alien"
    raw = tokenizer.decode_bytes((token,))
    return raw, "text" if token < tokenizer.num_ranks else "marker" if raw.decode() in MARKERS else "alien"
