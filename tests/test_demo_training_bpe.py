"""The vocabulary against a brute-force trainer, and tiktoken's merging with it against merging by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from demo_training import bpe

from lilliput.text.split import SPLIT_PATTERN
from lilliput.text.tokenizer import Tokenizer

TEXT = 'Once upon a time there was a fox. The fox\'s well was deep; the owl said, "Hello, fox!" 12345 times.\n\nÜber café — 漢字 xx\n'


def brute_force(counted: Mapping[bytes, int], num_ranks: int) -> list[bytes]:
    """Counts every pair anew for every merge."""
    tokens = [bytes((byte,)) for byte in range(256)]
    words = [([bytes((byte,)) for byte in piece], number) for piece, number in counted.items()]
    while len(tokens) < num_ranks:
        often: Counter[tuple[bytes, bytes]] = Counter()
        for word, number in words:
            for pair in pairwise(word):
                often[pair] += number
        if not +often:
            break
        best = min(+often, key=lambda pair: (-often[pair], pair))
        for index, (word, number) in enumerate(words):
            new: list[bytes] = []
            at = 0
            while at < len(word):
                wide = 2 if tuple(word[at : at + 2]) == best else 1
                new.append(b"".join(word[at : at + wide]))
                at += wide
            words[index] = new, number
        if b"".join(best) not in tokens:
            tokens.append(b"".join(best))
    return tokens


def by_hand(text: str, ranks: Mapping[bytes, int]) -> list[int]:
    ids: list[int] = []
    for piece in regex.findall(SPLIT_PATTERN, text, flags=regex.V1):
        word = [bytes((byte,)) for byte in piece.encode()]
        while True:
            known = [(ranks[left + right], at) for at, (left, right) in enumerate(pairwise(word)) if left + right in ranks]
            if not known:
                break
            at = min(known)[1]
            word[at : at + 2] = [word[at] + word[at + 1]]
        ids += [ranks[token] for token in word]
    return ids


def test_equals_brute_force_on_text() -> None:
    counted = bpe.count([TEXT, TEXT.upper(), TEXT * 2])
    learned = bpe.learn(counted, 340)
    assert learned[256:] == brute_force(counted, 340)[256:]
    assert len(learned) == 340


@pytest.mark.parametrize("alphabet", ["a", "ab", "aab b", "abcd  "])
def test_equals_brute_force_where_pairs_overlap_and_tie(alphabet: str) -> None:
    rng = random.Random(alphabet)
    for _ in range(40):
        counted = bpe.count("".join(rng.choices(alphabet, k=rng.randrange(1, 60))) for _ in range(3))
        assert bpe.learn(counted, 300)[256:] == brute_force(counted, 300)[256:]


def test_does_not_depend_on_the_order_of_the_text() -> None:
    words = [word for word in TEXT.split(" ") if word]
    forward, backward = bpe.count(words), bpe.count(reversed(words))
    assert list(forward) != list(backward)
    assert bpe.learn(forward, 320) == bpe.learn(backward, 320)


def test_single_bytes_have_the_ids_of_the_release() -> None:
    """Section 11.2 of the model's specification names some."""
    tokens = bpe.learn({}, 2048)
    assert sorted(tokens) == [bytes((byte,)) for byte in range(256)]
    assert [tokens.index(token) for token in (b'"', b" ", b"\n")] == [1, 220, 198]
    with pytest.raises(ValueError, match="at least 256"):
        bpe.learn({}, 255)


def test_tokens_lie_within_pieces_of_the_split() -> None:
    pieces = [piece.encode() for piece in regex.findall(SPLIT_PATTERN, TEXT, flags=regex.V1)]
    for token in bpe.learn(bpe.count([TEXT * 3]), 400)[256:]:
        assert any(token in piece for piece in pieces), token


def test_tiktoken_merges_as_by_hand(tmp_path: Path) -> None:
    tokens = bpe.learn(bpe.count([TEXT, "the well, the fox and the owl " * 5]), 330)
    bpe.write(tokens, tmp_path)
    tokenizer = Tokenizer.open(tmp_path, len(tokens) + bpe.NUM_ADDED)
    assert tokenizer is not None
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for text in (TEXT, TEXT.swapcase(), "welly foxtrot, thethethe \t\n  x" * 3, "ÄÖ£ß 漢"):
        assert tokenizer.encode(text) == by_hand(text, ranks)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    # The added tokens stand where the release has them.
    first = len(tokens)
    names = {"[BOS]": 0, "[EOS]": 1, "<|end_of_msg|>": 2, "<|open|>": 3, "<|close|>": 4, "<|sep|>": 5, "[UNK]": 254, "[PAD]": 255}
    assert {name: tokenizer.special[name] - first for name in names} == names


def test_shares_are_shares_of_the_bytes() -> None:
    mixed = bpe.weighted([({b"aaaa": 10}, 0.8), ({b"b": 1, b"cccc": 1}, 0.2)], total=1000)
    assert mixed == {b"aaaa": 200, b"b": 40, b"cccc": 40}
