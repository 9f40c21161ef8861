"""The set of shard names in `model.safetensors.index.json`, without decoding it.

The released index has 60 MB: half a million pairs of tensor and shard, of which only the 96 different shard names are wanted (which
tensor is where is asked of the headers). So the file passes through a window of a few MB, and one regular expression matches a whole run
of pairs that name the same shard; the file is sorted, so there are few runs. The grammar is checked all the way: a cut or patched index
is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

import msgspec

from lilliput.errors import CheckpointError, Problem

CHUNK = 1 << 20
LARGEST_ITEM = 1 << 20  # bytes of one pair, or of one value beside the weight map
MOST_SHARDS = 30_000  # shard numbers are kept as int16

# Possessive quantifiers: no backtracking, so time is linear in the file whatever stands in it.
_WS = rb"[ \t\r\n]*+"
_TEXT = rb'[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+'
_KEY = _WS + b'"' + _TEXT + b'"' + _WS + b":" + _WS
_RUN = re.compile(_KEY + b'"(' + _TEXT + b')"' + _WS + b",(?:" + _KEY + rb'"\1"' + _WS + b",)*+", re.DOTALL)
_LAST = re.compile(_KEY + b'"(' + _TEXT + b')"' + _WS + rb"\}", re.DOTALL)
_NAME = re.compile(_WS + b'("' + _TEXT + b'")' + _WS + b":", re.DOTALL)
_SPACE = re.compile(_WS)
_TOKEN = re.compile(b'"' + _TEXT + rb'"|[{}\[\]]|[^"{}\[\],]++|,', re.DOTALL)


class _Window:
    """The part of the file that is looked at: `data[at:]` is not yet understood."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file, self.data, self.at, self.passed = path, file, b"", 0, 0
        self.ended = False

    def more(self) -> bool:
        """Another chunk behind what is left; False at the end of the file. Refuses what does not fit into the window."""
        if self.ended:
            return False
        if len(self.data) - self.at > LARGEST_ITEM:
            raise self.malformed(f"the next entry, of at most {LARGEST_ITEM:,} bytes")
        part = self.file.read(CHUNK)
        self.passed += self.at
        self.data, self.at = self.data[self.at :] + part, 0
        self.ended = not part
        return bool(part)

    def match(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """The pattern at this place, read further if need be; passes it."""
        found = pattern.match(self.data, self.at)
        while found is None and self.more():
            found = pattern.match(self.data, self.at)
        if found:
            self.at = found.end()
        return found

    def next(self) -> bytes:
        """The next byte that is not white space, not passed; b"" at the end."""
        while True:
            space = _SPACE.match(self.data, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.data) or not self.more():
                return self.data[self.at : self.at + 1]

    def expect(self, options: bytes) -> bytes:
        """Passes one of these characters."""
        found = self.next()
        if not found or found not in options:
            raise self.malformed(" or ".join(chr(c) for c in options))
        self.at += 1
        return found

    def malformed(self, needed: str) -> CheckpointError:
        here = self.data[self.at : self.at + 40]
        found = f"{here!r} at byte {self.passed + self.at:,}" if here else "the end of the file (is it cut short?)"
        return CheckpointError([Problem(self.path, "", needed, found)])


def shard_names(path: Path) -> list[str]:
    """The different shard names of an index file, sorted; CheckpointError where it is not a proper index."""
    try:
        with path.open("rb", buffering=0) as file:
            window = _Window(path, file)
            names = _scan(window)
    except OSError as error:
        raise CheckpointError([Problem(path, "", "a readable file", error.strerror or str(error))]) from None
    problems = [Problem(path, "weight_map", "names of files in this directory", ascii(n)) for n in names if not _is_plain(n)]
    if problems:
        raise CheckpointError(problems)
    return sorted(names)


def _is_plain(name: str) -> bool:
    """A relative path that stays below the directory."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not any(p in ("", ".", "..") for p in parts)


def _scan(window: _Window) -> set[str]:
    window.expect(b"{")
    names: set[bytes] | None = None
    more = window.next() != b"}"
    while more:
        key = window.match(_NAME)
        if key is None:
            raise window.malformed('a JSON object with "weight_map"')
        if _decoded(window, key[1]) != "weight_map":
            _pass_value(window)
        elif names is not None:
            raise CheckpointError([Problem(window.path, "weight_map", "it once", "it twice")])
        else:
            names = _weight_map(window)
        more = window.expect(b",}") == b","
        if not more:
            window.at -= 1
    window.expect(b"}")
    if window.next():
        raise window.malformed("nothing after the JSON object")
    if not names:
        raise CheckpointError([Problem(window.path, "weight_map", "tensors and their shards", "nothing")])
    return {_decoded(window, b'"' + name + b'"') for name in names}


def _weight_map(window: _Window) -> set[bytes]:
    """The values of the map, still with their escapes."""
    names: set[bytes] = set()
    window.expect(b"{")
    if window.next() == b"}":
        window.at += 1
        return names
    while True:
        # The last pair is tried first only where no run begins: a run that ends at the window's edge goes on after more was read.
        found = _RUN.match(window.data, window.at)
        last = None if found else _LAST.match(window.data, window.at)
        match = found or last
        if match is None:
            if not window.more():
                raise window.malformed("a tensor name and its shard")
            continue
        window.at = match.end()
        names.add(match[1])
        if len(names) > MOST_SHARDS:
            raise CheckpointError([Problem(window.path, "weight_map", f"at most {MOST_SHARDS:,} shards", "more")])
        if last:
            return names


def _pass_value(window: _Window) -> None:
    """Passes a value that is not looked at (`metadata`), however it is nested."""
    window.next()
    while True:
        depth, at = 0, window.at
        while (token := _TOKEN.match(window.data, at)) is not None:
            first = token[0][:1]
            if depth == 0 and first in b",}" and at > window.at:
                break
            depth += (first in b"{[") - (first in b"}]")
            at = token.end()
            if depth == 0 and first in b'"}]':
                break
        else:
            token = None
        if token is not None and depth <= 0:
            break
        if not window.more():
            raise window.malformed("a value")
    try:
        msgspec.json.decode(window.data[window.at : at])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise window.malformed("valid JSON") from None
    window.at = at


def _decoded(window: _Window, quoted: bytes) -> str:
    try:
        return msgspec.json.decode(quoted, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        raise CheckpointError([Problem(window.path, "", "valid JSON text", ascii(quoted[:60]))]) from None
