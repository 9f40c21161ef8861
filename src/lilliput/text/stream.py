"""Text from token ids as they come, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Sequence

from lilliput.errors import UsageError

MOST_NAMED = 8


class TextStream:
    """Turns ids into text one at a time; made by `Tokenizer.stream`.

    A character whose bytes are spread over several tokens appears with its last byte. Bytes that cannot become a character any
    more appear as U+FFFD at once. What all `push` calls and `finish` returned, joined, equals `Tokenizer.decode` of all ids.
    """

    __slots__ = ("_held", "_tokens")

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens
        self._held = b""

    def push(self, token: int) -> str:
        """The characters that the bytes of `token` complete; often none. Raises UsageError for an id out of range."""
        raw = self._held + bytes_of(self._tokens, (token,))
        end = len(raw) - _unfinished(raw)
        self._held = raw[end:]
        return raw[:end].decode("utf-8", "replace")

    @property
    def pending(self) -> int:
        """Bytes held back: the beginning of a character (0..3)."""
        return len(self._held)

    def finish(self) -> str:
        """What is left of a character that never ended, as U+FFFD. The stream is then as new."""
        raw, self._held = self._held, b""
        return raw.decode("utf-8", "replace")


def _unfinished(raw: bytes) -> int:
    """Length of the beginning of a character that `raw` ends with: 0..3 bytes which one to three more can make valid.

    Not Python's incremental decoder: that one also holds back ED A0..ED BF, the first half of an encoded surrogate, which no
    byte makes valid. Cutting before a lead byte changes no result, as a lead byte always starts anew.
    """
    for length in range(1, min(3, len(raw)) + 1):
        lead = raw[-length]
        if 0x80 <= lead < 0xC0:
            continue
        whole = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0
        if length >= whole:
            return 0
        if length > 1:
            # Overlong forms, surrogates and code points above U+10FFFF already show in the second byte.
            second = raw[1 - length]
            lowest = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80)
            highest = {0xED: 0x9F, 0xF4: 0x8F}.get(lead, 0xBF)
            if not lowest <= second <= highest:
                return 0
        return length
    return 0


def bytes_of(tokens: Sequence[bytes], ids: Sequence[int]) -> bytes:
    """The bytes of all `ids` one after the other, given every id's bytes. Raises UsageError naming the ids out of range."""
    wrong = [token for token in ids if not 0 <= token < len(tokens)]
    if wrong:
        shown = ", ".join(map(str, wrong[:MOST_NAMED])) + (f" and {len(wrong) - MOST_NAMED} more" if len(wrong) > MOST_NAMED else "")
        raise UsageError(f"token ids out of range: needed 0 to {len(tokens) - 1}, found {shown}")
    return b"".join([tokens[token] for token in ids])
