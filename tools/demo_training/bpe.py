"""A byte-level byte-pair vocabulary, learned from weighted text in K3's split, and written in the files of the release."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import regex

from lilliput.text.bytelevel import tokenizer_files
from lilliput.text.split import SPLIT_PATTERN, pieces

NUM_ADDED = 256
# The order of single bytes that the release has from its ancestors: printable ones first.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = tuple(bytes((byte,)) for byte in [*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)])

Pair = tuple[bytes, bytes]


def count(texts: Iterable[str]) -> Counter[bytes]:
    """How often each piece of the split pattern occurs in the texts."""
    split = regex.compile(SPLIT_PATTERN, regex.V1)
    counted: Counter[str] = Counter()
    for text in texts:
        for block in pieces(text):
            counted.update(split.findall(block))
    return Counter({piece.encode(): number for piece, number in counted.items()})


def weighted(parts: Iterable[tuple[Mapping[bytes, int], float]], total: int = 100_000_000) -> Counter[bytes]:
    """One count out of several, each part given its share of `total` bytes. Whole numbers, so that sums do not depend on their order."""
    mixed: Counter[bytes] = Counter()
    for counted, share in parts:
        size = sum(len(piece) * number for piece, number in counted.items())
        for piece, number in counted.items():
            mixed[piece] += round(number * share * total / size)
    return mixed


def learn(counted: Mapping[bytes, int], num_ranks: int) -> list[bytes]:
    """The tokens of a vocabulary in order of rank: the 256 bytes, then the most frequent pair of neighbours again and again.

    Of equally frequent pairs the first in the order of bytes is merged. Ends early when no pair occurs. Raises ValueError below 256.
    """
    if num_ranks < len(BYTES):
        raise ValueError(f"a byte-level vocabulary has at least 256 ranks, found {num_ranks}")
    tokens = list(BYTES)
    known = set(tokens)
    words = [[bytes((byte,)) for byte in piece] for piece in counted]
    numbers = list(counted.values())
    often: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in pairwise(word):
            often[pair] += numbers[index]
            where[pair].add(index)
    # Counts in the heap go stale when they change; a stale entry is pushed again with the count of the day when it comes up.
    heap = [(-number, pair) for pair, number in often.items() if number > 0]
    heapq.heapify(heap)
    while heap and len(tokens) < num_ranks:
        number, pair = heapq.heappop(heap)
        if -number != often[pair]:
            if often[pair] > 0:
                heapq.heappush(heap, (-often[pair], pair))
            continue
        merged = pair[0] + pair[1]
        changed: Counter[Pair] = Counter()
        for index in where.pop(pair):
            word = words[index]
            new = _merged(word, pair)
            for old in pairwise(word):
                changed[old] -= numbers[index]
            for fresh in pairwise(new):
                changed[fresh] += numbers[index]
                where[fresh].add(index)
            words[index] = new
        for touched, difference in changed.items():
            often[touched] += difference
            if difference > 0:
                heapq.heappush(heap, (-often[touched], touched))
        # Two pairs may spell the same token; ranks name byte strings, and the first way to it is the one.
        if merged not in known:
            known.add(merged)
            tokens.append(merged)
    return tokens


def _merged(word: list[bytes], pair: Pair) -> list[bytes]:
    """The word with every occurrence of the pair joined, from the left."""
    new: list[bytes] = []
    for token in word:
        # What was joined just now is no left half again: it is longer than pair[0].
        if new and new[-1] == pair[0] and token == pair[1]:
            new[-1] = pair[0] + pair[1]
        else:
            new.append(token)
    return new


def write(tokens: list[bytes], directory: Path) -> None:
    """`tiktoken.model` and `tokenizer_config.json` with the 256 added tokens of the release behind the ranks."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, raw in tokenizer_files(tokens, len(tokens) + NUM_ADDED).items():
        (directory / name).write_bytes(raw)
