"""Text to token ids and back, as the release does it: tiktoken does the merging, everything around it is here.

Three things to know. Text that spells an added token (`<|open|>`) stays text unless `allow_special` is given: tiktoken is never told
these names, so it cannot produce their ids. No token is put in front by itself: there is no BOS. Every segment of a prompt is encoded
on its own; tokens do not merge across segments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lilliput.errors import DoesNotFitError, LilliputError, UsageError, shown
from lilliput.text.split import SPLIT_PATTERN, pieces
from lilliput.text.stream import TextStream, bytes_of
from lilliput.text.vocabulary import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    from tiktoken import Encoding


class Tokenizer:
    """The vocabulary of a checkpoint. `open` it; safe to share between threads.

    `special` maps the names of the added tokens to their ids, all of them at or above `num_ranks`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens = vocabulary.tokens
        self.special = vocabulary.special
        self.num_ranks = vocabulary.num_ranks

    @classmethod
    def open(cls, directory: Path, vocab_size: int) -> Tokenizer | None:
        """Read `tiktoken.model` and `tokenizer_config.json` of a checkpoint; None where the former is absent.

        Raises TokenizerError with every problem of the two files.
        """
        vocabulary = read_vocabulary(Path(directory), vocab_size)
        return None if vocabulary is None else cls(vocabulary)

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def encode(self, text: str, allow_special: bool = False, most: int | None = None) -> list[int]:
        """Ids of one segment of text.

        With `allow_special` the names of added tokens become their ids, as wanted for the markers of a message and never for
        what a user wrote. Raises UsageError for text that is not valid Unicode, and DoesNotFitError as soon as there are more than `most`.
        """
        _check_text(text)
        ids: list[int] = []
        done = 0
        for piece in pieces(text):
            start = 0
            if allow_special and self._names is not None:
                for name in self._names.finditer(piece):
                    ids += self._merge(piece[start : name.start()])
                    ids.append(self.special[name.group()])
                    start = name.end()
            ids += self._merge(piece[start:])
            done += len(piece)
            if most is not None and len(ids) > most:
                raise DoesNotFitError(
                    f"needed at most {most:,} tokens, found {len(ids):,} in {done:,} of the text's {len(text):,} characters"
                )
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = False) -> str:
        """Text of all `ids`: their bytes joined, then UTF-8 with U+FFFD for what is invalid. Added tokens give their names,
        or nothing with `skip_special`. Raises UsageError naming the ids out of range."""
        return self.decode_bytes(ids, skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int], skip_special: bool = False) -> bytes:
        """The bytes of all `ids`, exactly; otherwise like `decode`."""
        return bytes_of(self._shown(skip_special), list(ids))

    def stream(self, skip_special: bool = False) -> TextStream:
        """A decoder for ids that come one at a time."""
        return TextStream(self._shown(skip_special))

    def _shown(self, skip_special: bool) -> tuple[bytes, ...]:
        return self._without_names if skip_special else self._tokens

    @cached_property
    def _without_names(self) -> tuple[bytes, ...]:
        return self._tokens[: self.num_ranks] + (b"",) * len(self.special)

    @cached_property
    def _names(self) -> re.Pattern[str] | None:
        # Longest first, so that a name which begins another never hides it.
        names = sorted(self.special, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names))) if names else None

    @cached_property
    def _encoding(self) -> Encoding:
        # Built when first needed: 0.15 s and some 50 MB that a run from ids to text can do without.
        from tiktoken import Encoding

        ranks = {token: rank for rank, token in enumerate(self._tokens[: self.num_ranks])}
        return Encoding("checkpoint", pat_str=SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={})

    def _merge(self, piece: str) -> list[int]:
        try:
            return self._encoding.encode_ordinary(piece)
        except BaseException as error:
            # tiktoken's Rust panics derive from BaseException and would pass every handler on the way up. `pieces` avoids the known one.
            if type(error).__name__ != "PanicException":
                raise
            raise LilliputError(f"the tokenizer library failed on a piece of {len(piece)} characters: {error}") from None


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError(f"text: needed a text, found {shown(text)}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        # The command line delivers bytes that are not UTF-8 as U+DC80..U+DCFF.
        found = f"the byte 0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"half of a surrogate pair, U+{code:04X},"
        raise UsageError(f"the text is not valid Unicode: needed UTF-8, found {found} at character {error.start + 1}") from None
