"""Texts that nothing could hold are refused before they are read whole and tokenized."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lilliput.cli.main import run
from lilliput.cli.options import MOST_TEXT
from lilliput.text.tokenizer import Tokenizer

VERBS = [["generate", "demo", "-n", "1"], ["logits", "demo", "-o", "logits.npy"], ["tokenize", "demo"]]


class Endless(io.RawIOBase):
    """A stream that never ends, of which nobody should read much."""

    def __init__(self) -> None:
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.given += len(buffer)
        assert self.given < 4 * MOST_TEXT, "read without a bound"
        buffer[:] = b"a" * len(buffer)
        return len(buffer)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters of each piece that is tokenized."""
    seen: list[int] = []
    merge = Tokenizer._merge

    def counting(self: Tokenizer, piece: str) -> list[int]:
        seen.append(len(piece))
        return merge(self, piece)

    monkeypatch.setattr(Tokenizer, "_merge", counting)
    return seen


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_file_beyond_any_context_is_not_read(verb: list[str], merged: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    Path("big").touch()
    os.truncate("big", MOST_TEXT + 1000)
    assert run([*verb, "-f", "big"]) == 3
    assert f"big: needed at most {MOST_TEXT:,} bytes of text" in (error := capsys.readouterr().err)
    assert f"found {MOST_TEXT + 1000:,}" in error
    assert not merged


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_stream_without_end_is_given_up(
    verb: list[str], merged: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(Endless())))
    assert run([*verb, "-f", "-"]) == 3
    assert f"stdin: needed at most {MOST_TEXT:,} bytes of text" in capsys.readouterr().err
    assert not merged


@pytest.mark.parametrize("verb", VERBS[:2], ids=lambda verb: verb[0])
def test_a_prompt_beyond_the_budget_is_tokenized_no_further_than_shows_it(
    verb: list[str], merged: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("long").write_text("Once upon a time there was a house. " * 60_000)
    assert run([*verb, "-f", "long", "--memory", "100MB"]) == 3
    error = capsys.readouterr().err
    assert "the prompt: needed at most 156,160 tokens, found " in error
    assert "--memory 100MB" in error
    assert sum(merged) <= 800_000  # of 2,160,000


def test_the_longest_text_allowed_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    Path("most").write_bytes(b"\xff".rjust(MOST_TEXT))
    assert run(["tokenize", "demo", "-f", "most"]) == 2
    assert f"found byte 0xff at {MOST_TEXT - 1}" in capsys.readouterr().err
