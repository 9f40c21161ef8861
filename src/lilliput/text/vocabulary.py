"""Strict reading of `tiktoken.model` and `tokenizer_config.json`: every complaint is collected, then raised once."""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lilliput.errors import InputError, Problem, TokenizerError
from lilliput.machine.fetching import fetch_again
from lilliput.machine.small_files import LARGEST, read_small

RANKS_FILE = "tiktoken.model"
NAMES_FILE = "tokenizer_config.json"
LARGEST_RANKS = 64 * 1024 * 1024  # bytes; the released file has 3 MB
MOST_ADDED = 65536  # the release has 256
MOST_LISTED = 8
MOST_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids 0..num_ranks-1 are byte strings merged in order of their rank; the rest, up to vocab_size-1, are added tokens.

    `tokens[id]` are the bytes of any id, `special` maps the names of the added tokens to their ids.
    """

    tokens: tuple[bytes, ...]
    special: dict[str, int]

    @property
    def num_ranks(self) -> int:
        return len(self.tokens) - len(self.special)


def read_vocabulary(directory: Path, vocab_size: int) -> Vocabulary | None:
    """Read both files of `directory`; None where there is no `tiktoken.model`.

    The added tokens are the ids from the number of ranks up to `vocab_size` (163,584 and 163,840 in the release). Those without an
    entry in `added_tokens_decoder`, or all when the file is absent, are named `<|reserved_token_ID|>`.
    Raises TokenizerError with every problem of the two files.
    """
    problems: list[Problem] = []
    raw = _read(directory / RANKS_FILE, LARGEST_RANKS, problems)
    if raw is None and not problems:
        return None
    _check_number(directory / RANKS_FILE, raw or b"", vocab_size)
    ranks = _parse_ranks(directory / RANKS_FILE, raw, problems) if raw is not None else []
    names: dict[int, str] = {}
    raw = _read(directory / NAMES_FILE, LARGEST, problems)
    if raw is not None:
        names = _parse_names(directory / NAMES_FILE, raw, None if problems else range(len(ranks), vocab_size), problems)
    special: dict[str, int] = {}
    for token in range(len(ranks), vocab_size):
        name = names.get(token, f"<|reserved_token_{token}|>")
        if name in special:
            problems.append(
                Problem(directory / NAMES_FILE, f"added token {token}", "a name of its own", f"{name!r}, the name of {special[name]}")
            )
        special[name] = token
    if problems:
        raise _refusal(directory, problems)
    return Vocabulary((*ranks, *(name.encode() for name in special)), special)


def _check_number(path: Path, raw: bytes, vocab_size: int) -> None:
    """Before a complaint is made for every line, and a name for every added token."""
    lines = raw.count(b"\n") + (raw[-1:] not in (b"", b"\n"))
    if lines > vocab_size:
        problem = Problem(path, "number of tokens", f"at most the {vocab_size} of vocab_size in config.json", str(lines))
        raise _refusal(path.parent, [problem])
    if vocab_size - lines > MOST_ADDED:
        found = f"{lines}, which leaves {vocab_size - lines} of vocab_size in config.json"
        raise _refusal(path.parent, [Problem(path, "number of tokens", f"all but {MOST_ADDED} added tokens", found)])


def _refusal(directory: Path, problems: list[Problem]) -> TokenizerError:
    return TokenizerError(problems, fetch_again(directory, list(dict.fromkeys(Path(problem.file).name for problem in problems))))


def _read(path: Path, most: int, problems: list[Problem]) -> bytes | None:
    """The file's bytes; None where it does not exist, or cannot be read (then with a problem)."""
    try:
        return read_small(path, most)
    except InputError as error:
        problems.extend(error.problems)
        return None


def _parse_ranks(path: Path, raw: bytes, problems: list[Problem]) -> list[bytes]:
    """Tokens in order of rank. After a problem the list still has one entry per line, but its content means nothing."""
    lines = raw.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    tokens: list[bytes] = [b""] * len(lines)
    line_of_rank: list[int] = [0] * len(lines)
    line_of_token: dict[bytes, int] = {}

    def complain(number: int, needed: str, found: str) -> None:
        problems.append(Problem(path, f"line {number}", needed, found))

    for number, line in enumerate(lines, 1):
        encoded, _, digits = line.partition(b" ")
        try:
            token = a2b_base64(encoded, strict_mode=True)
        except Base64Error:
            token = b""
        if not token:
            complain(number, "the bytes of a token in base64, a space, its rank", _quote(line))
        elif line_of_token.setdefault(token, number) != number:
            complain(number, "a token of its own", f"{_quote(token)}, the token of line {line_of_token[token]}")
        if not digits.isdigit():
            if token:
                complain(number, "an integer rank after one space", _quote(line))
            continue
        # A rank of more digits than the file has lines cannot be in range, and int() refuses to convert thousands of them.
        rank = int(digits) if len(digits) < 20 else len(lines)
        if rank >= len(lines):
            complain(number, f"a rank below {len(lines)}, the number of lines", _quote(digits))
        elif line_of_rank[rank]:
            complain(number, "a rank of its own", f"{rank}, the rank of line {line_of_rank[rank]}")
        else:
            line_of_rank[rank] = number
            tokens[rank] = token
    absent = [f"0x{byte:02X}" for byte in range(256) if bytes((byte,)) not in line_of_token]
    if absent:
        problems.append(Problem(path, "single bytes", "a token for each of the 256 bytes", f"none for {_listed(absent)}"))
    gaps = [str(rank) for rank, number in enumerate(line_of_rank) if not number]
    if gaps:
        problems.append(Problem(path, "ranks", f"every rank from 0 to {len(lines) - 1}", f"no line with {_listed(gaps)}"))
    return tokens


def _parse_names(path: Path, raw: bytes, added: range | None, problems: list[Problem]) -> dict[int, str]:
    """Id → name from `added_tokens_decoder`; ids must lie in `added` (None: unknown, as the ranks have problems)."""
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend(sorted(key for key, count in counts.items() if count > 1))
        return entries

    try:
        content = json.loads(raw.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        problems.append(Problem(path, "", "JSON in UTF-8", str(error)))
        return {}
    problems.extend(Problem(path, f"key {key!r}", "once", "twice or more in the same object") for key in repeated)
    if not isinstance(content, dict):
        problems.append(Problem(path, "", "a JSON object", type(content).__name__))
        return {}
    decoder = content.get("added_tokens_decoder", {})
    if not isinstance(decoder, dict):
        problems.append(Problem(path, "added_tokens_decoder", "an object of id → token", type(decoder).__name__))
        return {}
    names: dict[int, str] = {}
    for key, entry in decoder.items():
        where = f"added_tokens_decoder[{key!r}]"
        name = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or not _is_text(name):
            problems.append(Problem(path, where, 'an object with the token\'s name as "content"', _quote(json.dumps(entry).encode())))
        elif not (key.isascii() and key.isdigit() and len(key) < 20 and str(int(key)) == key):
            problems.append(Problem(path, where, "a token id as key", repr(key)))
        elif added is not None and int(key) not in added:
            span = f"an id from {added.start} to {added.stop - 1}" if added else "no added token"
            problems.append(Problem(path, where, f"{span}, between the ranks and vocab_size", f"{key} ({name!r})"))
        else:
            names[int(key)] = name
    return names


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
        return False
    return True


def _quote(raw: bytes) -> str:
    text = ascii(raw[: MOST_QUOTED + 1])[1:]  # without the b of a bytes literal
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}... ({len(raw)} bytes)"


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - MOST_LISTED} more" if len(items) > MOST_LISTED else ""
    return ", ".join(items[:MOST_LISTED]) + more
