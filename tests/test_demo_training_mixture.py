"""Rows begin where documents begin, shares are kept, and what is held out stays out."""

from __future__ import annotations

import random
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from demo_training import bpe, mixture
from demo_training.mixture import ROW, Corpus, Streams, build, prose_rows, told_rows
from demo_training.sources import Prose

from lilliput.text.bytelevel import byte_level_files
from lilliput.text.tokenizer import Tokenizer


def chapter(number: int, word: str = "river") -> str:
    """Thirty paragraphs, some long, in which no sentence comes twice."""
    rng = random.Random(number)

    def paragraph(index: int) -> str:
        days = (f"It was long day {number} {index} {day}." for day in range(rng.randrange(1, 40)))
        return " ".join([f"Paragraph {index} of {word} {number}.", *days])

    return "\n".join(map(paragraph, range(30)))


PROSE = Prose([chapter(number) for number in range(12)], [chapter(99, "zyzzyva"), chapter(98, "zyzzyva £5")])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "obtain", lambda work: PROSE)
        for name in ("SAMPLED_TALES", "SAMPLED_CONVERSATIONS", "HELD_OUT_ROWS"):
            patch.setattr(mixture, name, 30)
        return build(tmp_path_factory.mktemp("work"), tokens=100 * mixture.SEQUENCE)


@pytest.fixture(scope="module")
def tokenizer(corpus: Corpus) -> Tokenizer:
    found = Tokenizer.open(corpus.tokenizer, mixture.VOCAB_SIZE)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bytewise(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    for name, raw in byte_level_files(512).items():
        (folder / name).write_bytes(raw)
    found = Tokenizer.open(folder, 512)
    assert found is not None
    return found


def test_rows_begin_with_a_document_and_hold_whole_ones(corpus: Corpus, tokenizer: Tokenizer) -> None:
    assert corpus.rows.shape == (100, ROW)
    assert corpus.rows.dtype == np.uint16
    eos, end, start, sep = (tokenizer.special[name] for name in ("[EOS]", "<|end_of_msg|>", "<|open|>", "<|sep|>"))
    kinds = {"prose": 0, "told": 0}
    for row in corpus.rows:
        text = tokenizer.decode(row.tolist())
        if "It was long day" in text:
            kinds["prose"] += 1
            assert text.startswith(("Paragraph", "It was"))
            continue
        kinds["told"] += 1
        assert row[0] == start or text[0].isupper()
        # An element begins inside another one, or behind a message; a conversation only behind a finished tale.
        for before, token in pairwise(row):
            if token == start and before not in (sep, end):
                assert before == eos
    assert kinds == {"prose": 40, "told": 60}


def test_conversations_have_their_share_and_begin_only_where_they_fit() -> None:
    tale, talk = [1] * 130, [2] * 250

    def endless(ids: list[int]) -> list[int]:
        while True:
            yield ids

    rows = np.stack(list(islice(told_rows(Streams(endless(tale), endless(talk)), 0.37), 400)))
    assert abs((rows == 2).mean() - 0.37) < 0.01
    for row in rows:
        assert (row == 2).sum() in (0, 250)
    only = np.stack(list(islice(told_rows(Streams(endless(tale), endless(talk)), 1.0), 5)))
    assert (only == 2).all()
    none = np.stack(list(islice(told_rows(Streams(endless(tale), endless(talk)), 0.0), 5)))
    assert (none == 1).all()


def test_prose_rows_are_the_text(bytewise: Tokenizer) -> None:
    """Each is a stretch of the chapters in their order, from a paragraph or sentence on; a round misses little of them."""
    chapters = PROSE.heldout
    whole = "[EOS]".join([*chapters, ""])
    end = covered = 0
    for row in mixture.prose_once(chapters, bytewise):
        assert len(row) == ROW
        text = bytewise.decode_bytes(row.tolist()).decode("utf-8", "ignore")
        found = whole.find(text, end)
        assert found >= 0
        before = whole[:found]
        assert before.endswith(("\n", "[EOS]", ". ")) or not before
        end = found + len(text)
        covered += len(text)
    assert covered > 0.6 * len(whole)


def test_prose_goes_round_and_round(bytewise: Tokenizer) -> None:
    once = len(list(mixture.prose_once(PROSE.heldout, bytewise)))
    rows = [bytewise.decode(row.tolist()) for row in islice(prose_rows(PROSE.heldout, bytewise, random.Random(3)), 4 * once)]
    for chapter in PROSE.heldout:
        assert sum(row[:20] in chapter for row in rows) > once


def test_held_out_prose_is_measured_in_its_bytes(corpus: Corpus, tokenizer: Tokenizer) -> None:
    assert len(corpus.heldout) >= 4
    bytes_ = sum(len(tokenizer.decode(row[1:].tolist()).replace("[EOS]", "").encode()) for row in corpus.heldout)
    assert corpus.heldout_bytes == bytes_


def test_held_out_prose_shapes_no_token_and_no_row(corpus: Corpus, tokenizer: Tokenizer) -> None:
    assert "zyzzyva" in tokenizer.decode(corpus.heldout[0].tolist())
    assert not any(b"zyz" in tokenizer.decode_bytes([token]) for token in range(tokenizer.num_ranks))
    assert not any("zyz" in tokenizer.decode(row.tolist()) for row in corpus.rows)


def test_other_held_out_sets_are_of_their_kind(corpus: Corpus, tokenizer: Tokenizer) -> None:
    assert corpus.heldout_tales.shape == corpus.heldout_conversations.shape == (30, ROW)
    assert (corpus.heldout_conversations[:, 0] == tokenizer.special["<|open|>"]).all()
    assert not np.isin(corpus.heldout_tales, tokenizer.special["<|open|>"]).any()
    trained = {row.tobytes() for row in corpus.rows}
    assert not any(row.tobytes() in trained for row in (*corpus.heldout_tales, *corpus.heldout_conversations))


def test_is_built_once_and_the_same_for_the_same_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAMPLED_TALES", "SAMPLED_CONVERSATIONS", "HELD_OUT_ROWS"):
        monkeypatch.setattr(mixture, name, 10)
    monkeypatch.setattr(mixture, "NUM_RANKS", 300)
    asked: list[Path] = []
    monkeypatch.setattr(mixture, "obtain", lambda work: asked.append(work) or PROSE)
    made = [build(tmp_path / name, seed=seed, tokens=4000) for name, seed in (("a", 1), ("a", 1), ("b", 1), ("b", 2))]
    assert len(asked) == 3
    assert (made[0].rows == made[1].rows).all()
    assert (made[0].rows == made[2].rows).all()
    assert made[2].tokenizer != made[3].tokenizer
    assert not (made[2].rows == made[3].rows).all()
    assert Tokenizer.open(made[0].tokenizer, 300 + bpe.NUM_ADDED) is not None


@pytest.mark.parametrize("shares", [{"prose": 1.0}, {"prose": 0.5, "tales": 0.5, "conversations": 0.1}])
def test_other_shares_are_refused(shares: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shares of prose, tales, conversations that sum to 1"):
        build(tmp_path, shares=shares)
