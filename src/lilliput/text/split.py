"""How text is divided before byte-pair merging: K3's split pattern, and the cuts the reference makes in very long input.

Both decide ids: tokens never merge across a piece of the pattern, nor across a cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"

# `&&` is set intersection: tiktoken's engine knows it, and so does the `regex` package in its V1 mode; `re` does not.
SPLIT_PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

MAX_PIECE = 400_000  # characters handed to the merger at once
MAX_RUN = 25_000  # consecutive characters that are all space, or all not

# A run above the limit fills at least one of the windows of half its length, counted from the start: most text has none,
# which a glance at each window tells.
_WINDOW = MAX_RUN // 2
_FULL_WINDOW = re.compile(rf"\s{{{_WINDOW}}}|\S{{{_WINDOW}}}")

# `\s` of `re` and `str.isspace` agree on every code point. The look-behind lets a run be tried only at its first character,
# which keeps the search linear when many runs are just short of the limit.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{MAX_RUN + 1},}}|(?<!\S)\S{{{MAX_RUN + 1},}}")


def pieces(text: str) -> Iterator[str]:
    """Cut `text` as the reference does: every 400,000 characters, then inside each such block before every character
    that would be the 25,001st in a row of only spaces or of no spaces (the count starts again at a cut).

    The pieces joined are the text; the empty text has none. Besides giving the same ids, the cuts keep a run of a million
    spaces away from tiktoken's regular expressions, which would overflow their stack.
    """
    for begin in range(0, len(text), MAX_PIECE):
        block = text[begin : begin + MAX_PIECE]
        if not any(_FULL_WINDOW.match(block, window) for window in range(0, len(block), _WINDOW)):
            yield block
            continue
        start = 0
        for run in _LONG_RUN.finditer(block):
            for cut in range(run.start() + MAX_RUN, run.end(), MAX_RUN):
                yield block[start:cut]
                start = cut
        yield block[start:]
