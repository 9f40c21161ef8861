"""The training text in rows of tokens: prose, tales and conversations in given shares, shuffled, the same for the same seed.

A row has one token more than a sequence: a model reads all but the last and predicts all but the first. Every row begins where a document
begins (prose: a paragraph, or a sentence of a long one), because that is where the model will begin; what follows in the row is the rest
of the text, or whole documents one after the other, the last one cut. A plain document ends with [EOS], a conversation with its last
<|end_of_msg|>.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from demo_training import bpe
from demo_training.conversations import conversation
from demo_training.sources import Prose, obtain
from demo_training.tales import tale
from lilliput.text.chat import encode
from lilliput.text.tokenizer import Tokenizer

SEQUENCE = 384
ROW = SEQUENCE + 1
NUM_RANKS = 2048
VOCAB_SIZE = NUM_RANKS + bpe.NUM_ADDED
SHARES = {"prose": 0.40, "tales": 0.38, "conversations": 0.22}
EOS = "[EOS]"

# Seeds of the streams of tales and conversations; what is measured with is drawn apart from what is trained on.
BPE_SAMPLE, TRAINING, HELD_OUT = range(3)
SAMPLED_TALES, SAMPLED_CONVERSATIONS = 6000, 6000
HELD_OUT_ROWS = 64

Ids = list[int]
Rows = NDArray[np.uint16]


class Corpus(NamedTuple):
    """Rows of `ROW` = 385 token ids each.

    `rows` is for training; `heldout` is prose never trained on, whose predicted tokens (all but the first of each row) stand for
    `heldout_bytes` bytes of text in all; `heldout_tales` and `heldout_conversations` are fresh ones. `tokenizer` is the folder of
    `tiktoken.model` and `tokenizer_config.json`.
    """

    rows: Rows
    heldout: Rows
    heldout_bytes: int
    heldout_tales: Rows
    heldout_conversations: Rows
    tokenizer: Path


def build(work: Path, *, seed: int = 0, tokens: int = 12_000_000, shares: Mapping[str, float] = SHARES) -> Corpus:
    """The corpus of about `tokens` predicted tokens, from the cache in `work` if it was built there with the same arguments.

    `shares` say how much of the tokens is "prose", "tales" and "conversations"; they sum to 1. Raises ValueError for other shares, and
    what `sources.obtain` raises.
    """
    if shares.keys() != SHARES.keys() or min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise ValueError(f"shares of {', '.join(SHARES)} that sum to 1 are needed, found {dict(shares)}")
    asked = {"seed": seed, "tokens": tokens, "shares": dict(shares)}
    folder = work / f"corpus-{sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]}"
    if not (folder / "corpus.json").exists():
        _build(work, folder, asked)
    return _load(folder)


def _build(work: Path, folder: Path, asked: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    prose = obtain(work)
    seed, shares = asked["seed"], asked["shares"]
    tokens = _vocabulary(prose, seed, shares)
    bpe.write(tokens, folder)
    tokenizer = Tokenizer.open(folder, len(tokens) + bpe.NUM_ADDED)
    assert tokenizer is not None, "written just now"

    number = max(1, asked["tokens"] // SEQUENCE)
    from_prose = round(number * shares["prose"])
    rng = random.Random(f"{seed} rows")
    rows = list(islice(prose_rows(prose.train, tokenizer, rng), from_prose)) if from_prose else []
    told = shares["conversations"] / max(1e-9, shares["tales"] + shares["conversations"])
    rows += islice(told_rows(_streams(tokenizer, seed, TRAINING), told), number - from_prose)
    rng.shuffle(rows)
    np.save(folder / "rows.npy", np.stack(rows))

    heldout = np.stack(list(prose_once(prose.heldout, tokenizer)))
    np.save(folder / "heldout.npy", heldout)
    for name, share in (("heldout_tales", 0.0), ("heldout_conversations", 1.0)):
        fresh = islice(told_rows(_streams(tokenizer, seed, HELD_OUT), share), HELD_OUT_ROWS)
        np.save(folder / f"{name}.npy", np.stack(list(fresh)))
    size = sum(len(tokenizer.decode_bytes(row[1:].tolist(), skip_special=True)) for row in heldout)
    # Written last: a corpus with it is complete.
    (folder / "corpus.json").write_text(json.dumps({**asked, "heldout_bytes": size}, indent=2) + "\n")


def _load(folder: Path) -> Corpus:
    names = ("rows", "heldout", "heldout_tales", "heldout_conversations")
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
    return Corpus(**arrays, heldout_bytes=json.loads((folder / "corpus.json").read_text())["heldout_bytes"], tokenizer=folder)


def _vocabulary(prose: Prose, seed: int, shares: Mapping[str, float]) -> list[bytes]:
    """The tokens, learned from the training side only, every kind of text in its share."""
    rng = random.Random(f"{seed} {BPE_SAMPLE}")
    talks = (segment.text for _ in range(SAMPLED_CONVERSATIONS) for segment in conversation(rng) if not segment.special)
    counted = {
        "prose": bpe.count(prose.train),
        "tales": bpe.count(tale(rng).text for _ in range(SAMPLED_TALES)),
        "conversations": bpe.count(talks),
    }
    return bpe.learn(bpe.weighted((counted[kind], shares[kind]) for kind in SHARES), NUM_RANKS)


class Streams(NamedTuple):
    """Endless tales and conversations, encoded and ended."""

    tales: Iterator[Ids]
    conversations: Iterator[Ids]


def _streams(tokenizer: Tokenizer, seed: int, purpose: int) -> Streams:
    eos = tokenizer.special[EOS]

    def endless(kind: str, make: Callable[[random.Random], Ids]) -> Iterator[Ids]:
        rng = random.Random(f"{seed} {purpose} {kind}")
        while True:
            yield make(rng)

    def talk(rng: random.Random) -> Ids:
        while True:  # one that does not fit a row would never be seen to end
            ids = encode(tokenizer, conversation(rng))
            if len(ids) <= ROW:
                return ids

    return Streams(endless("tales", lambda rng: [*tokenizer.encode(tale(rng).text), eos]), endless("conversations", talk))


def told_rows(streams: Streams, share: float) -> Iterator[Rows]:
    """Rows of whole documents, the last cut; `share` of the tokens belong to conversations, the others to tales.

    A conversation only begins where all of it fits, or at the start of a row: of one that is cut, mostly its preamble would be left.
    """
    used: Counter[str] = Counter()
    waiting: Ids = []
    while True:
        row: Ids = []
        while len(row) < ROW:
            behind = used["conversations"] < share * (used["conversations"] + used["tales"] + ROW)
            if share and not waiting:
                waiting = next(streams.conversations)
            if share == 1 or (share and behind and len(row) + len(waiting) <= ROW):
                kind, ids, waiting = "conversations", waiting, []
            else:
                kind, ids = "tales", next(streams.tales)
            used[kind] += min(len(ids), ROW - len(row))
            row += ids
        yield np.array(row[:ROW], np.uint16)


# Where a row of prose may begin besides the start of a paragraph, when that is too far away.
_SENTENCE = re.compile(r'(?<=[.?!])(?<!Mr\.)(?<!Mrs\.)(?<!Dr\.)(?<!St\.)"? (?=[A-Z"])')
FAR = 300  # characters
AHEAD = 16 * ROW  # characters; surely more than a row's tokens stand for


def prose_rows(chapters: list[str], tokenizer: Tokenizer, rng: random.Random) -> Iterator[Rows]:
    """Endless rows of prose: the chapters in their order, again and again.

    A round begins at a paragraph of its own, but rounds soon meet at some paragraph and then agree: most rows come again, and what lies
    between a row's end and the next place to begin (an eighth of these texts) is in none.
    """
    starts = [_starts(chapter) for chapter in chapters]
    while True:
        yield from _walk(chapters, starts, tokenizer, skip=rng.randrange(40))


def prose_once(chapters: list[str], tokenizer: Tokenizer) -> Iterator[Rows]:
    """The chapters in rows, once."""
    return _walk(chapters, [_starts(chapter) for chapter in chapters], tokenizer, skip=0)


def _starts(chapter: str) -> list[int]:
    """Offsets at which a row may begin: every paragraph, and sentences that are far from the next one."""
    paragraphs = [0, *(match.end() for match in re.finditer("\n", chapter))]
    found: list[int] = []
    for begin, end in zip(paragraphs, [*paragraphs[1:], len(chapter)], strict=True):
        found.append(begin)
        found += [match.end() for match in _SENTENCE.finditer(chapter, begin, end) if match.end() > begin + FAR and match.end() < end - FAR]
    return found


def _walk(chapters: list[str], starts: list[list[int]], tokenizer: Tokenizer, skip: int) -> Iterator[Rows]:
    """Rows one after the other: each begins at the first place where one may, at or after the end of the row before."""
    eos = tokenizer.special[EOS]
    chapter, at = 0, starts[0][min(skip, len(starts[0]) - 1)]
    while chapter < len(chapters):
        row: Ids = []
        while len(row) < ROW and chapter < len(chapters):
            text = chapters[chapter][at : at + AHEAD]
            ids = tokenizer.encode(text)
            if at + len(text) == len(chapters[chapter]):
                ids.append(eos)
            room = ROW - len(row)
            row += ids[:room]
            if len(ids) <= room:
                chapter, at = chapter + 1, 0
            else:
                # Characters, not bytes; a character cut in two counts as begun.
                at += len(tokenizer.decode_bytes(ids[:room], skip_special=True).decode("utf-8", "ignore"))
        if len(row) == ROW:
            yield np.array(row, np.uint16)
        if chapter < len(chapters) and at:
            later = [start for start in starts[chapter] if start >= at]
            chapter, at = (chapter, later[0]) if later else (chapter + 1, 0)
