"""Reading `tiktoken.model` and `tokenizer_config.json`, good and malformed, and the byte-level files of synthetic checkpoints."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lilliput.errors import TokenizerError, UsageError
from lilliput.text.bytelevel import byte_level_files
from lilliput.text.tokenizer import Tokenizer

BYTES = [bytes((byte,)) for byte in range(256)]


def ranks_file(tokens: Sequence[bytes]) -> bytes:
    return b"".join(b64encode(token) + b" " + str(rank).encode() + b"\n" for rank, token in enumerate(tokens))


def write(directory: Path, ranks: bytes | None, names: object = None) -> Path:
    if ranks is not None:
        (directory / "tiktoken.model").write_bytes(ranks)
    if isinstance(names, bytes):
        (directory / "tokenizer_config.json").write_bytes(names)
    elif names is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory


GOOD = ranks_file([*BYTES, b"ab", b"abc"])


def test_absent_files(tmp_path: Path) -> None:
    assert Tokenizer.open(tmp_path, 260) is None
    assert Tokenizer.open(write(tmp_path, None, {"added_tokens_decoder": {}}), 260) is None
    (tmp_path / "tokenizer_config.json").unlink()
    tokenizer = Tokenizer.open(write(tmp_path, GOOD), 260)
    assert tokenizer is not None
    assert tokenizer.special == {"<|reserved_token_258|>": 258, "<|reserved_token_259|>": 259}
    assert tokenizer.encode("abcab") == [257, 256]


def test_no_added_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.open(write(tmp_path, GOOD, {}), 258)
    assert tokenizer is not None
    assert tokenizer.special == {}
    assert tokenizer.encode("abc[BOS]", allow_special=True) == [257, *b"[BOS]"]


def test_files_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(GOOD)
    (tmp_path / "tiktoken.model").symlink_to("blob")
    assert Tokenizer.open(tmp_path, 260) is not None
    (tmp_path / "blob").unlink()
    with pytest.raises(TokenizerError, match=r"tiktoken\.model: needed a file, found a link to blob, which does not exist"):
        Tokenizer.open(tmp_path, 260)


def changed(line: int, new: bytes) -> Callable[[bytes], bytes]:
    def change(raw: bytes) -> bytes:
        lines = raw.split(b"\n")
        lines[line - 1] = new
        return b"\n".join(lines)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (changed(257, b"Y!I= 256"), "line 257: needed the bytes of a token in base64, a space, its rank, found 'Y!I= 256'"),
        (changed(257, b"YW 256"), "line 257: needed the bytes of a token in base64"),
        (changed(257, b"YWI 256"), "line 257: needed the bytes of a token in base64"),
        (changed(257, b" 256"), "line 257: needed the bytes of a token in base64"),
        (changed(257, b""), "line 257: needed the bytes of a token in base64, a space, its rank, found ''"),
        (changed(257, b"\xff\xfe 256"), r"line 257: needed the bytes of a token in base64, a space, its rank, found '\xff\xfe 256'"),
        (changed(257, b"YWI="), "line 257: needed an integer rank after one space, found 'YWI='"),
        (changed(257, b"YWI=\t256"), "line 257: needed the bytes of a token in base64"),
        (changed(257, b"YWI=  256"), "line 257: needed an integer rank"),
        (changed(257, b"YWI= 2.56e2"), "line 257: needed an integer rank"),
        (changed(257, b"YWI= -1"), "line 257: needed an integer rank"),
        (changed(257, b"YWI= 2_56"), "line 257: needed an integer rank"),
        (changed(257, b"YWI= 256 7"), "line 257: needed an integer rank"),
        (changed(257, b"YWI= 256\r"), r"line 257: needed an integer rank after one space, found 'YWI= 256\r'"),
        (changed(257, b"YWI= 900"), "line 257: needed a rank below 258, the number of lines, found '900'"),
        (changed(257, b"YWI= " + b"9" * 5000), "line 257: needed a rank below 258, the number of lines, found '999"),
        (changed(257, b"YWI= 255"), "line 257: needed a rank of its own, found 255, the rank of line 256"),
        (changed(257, b"YWI= 255"), "ranks: needed every rank from 0 to 257, found no line with 256"),
        (changed(258, b"YWI= 257"), "line 258: needed a token of its own, found 'ab', the token of line 257"),
        (changed(66, b"YWJjZA== 65"), "single bytes: needed a token for each of the 256 bytes, found none for 0x41"),
        (lambda raw: b"", "single bytes: needed a token for each of the 256 bytes, found none for 0x00, 0x01"),
        (lambda raw: raw + b"\n", "line 259: needed the bytes of a token"),
        (lambda raw: raw[:-6], "line 258: needed"),
        (
            lambda raw: raw + b"YWJk 258\nYWJl 259\nYWJm 260\n",
            "number of tokens: needed at most the 260 of vocab_size in config.json, found 261",
        ),
    ],
)
def test_malformed_ranks(change: Callable[[bytes], bytes], expected: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.open(write(tmp_path, change(GOOD)), 260)
    assert f"{tmp_path / 'tiktoken.model'}: {expected}" in str(caught.value)
    assert f"`hf download moonshotai/Kimi-K3 tiktoken.model --local-dir {tmp_path} --force-download` fetches it again" in str(caught.value)
    assert caught.value.exit_code == 2


def entry(name: object) -> dict[str, object]:
    return {"content": name, "special": True}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (b"{", ": needed JSON in UTF-8, found Expecting"),
        (b"[" * 100_000, ": needed JSON in UTF-8, found "),
        (b'{"a": "\xff"}', ": needed JSON in UTF-8, found 'utf-8' codec"),
        (b"[]", ": needed a JSON object, found list"),
        ({"added_tokens_decoder": None}, ": added_tokens_decoder: needed an object of id → token, found NoneType"),
        ({"added_tokens_decoder": {"x": entry("y")}}, ": added_tokens_decoder['x']: needed a token id as key, found 'x'"),
        ({"added_tokens_decoder": {"0259": entry("y")}}, ": added_tokens_decoder['0259']: needed a token id as key"),
        ({"added_tokens_decoder": {"²": entry("y")}}, ": added_tokens_decoder['²']: needed a token id as key"),
        ({"added_tokens_decoder": {"9" * 5000: entry("y")}}, "needed a token id as key"),
        ({"added_tokens_decoder": {"259": "y"}}, ": added_tokens_decoder['259']: needed an object with the token's name as"),
        ({"added_tokens_decoder": {"259": entry(7)}}, ": added_tokens_decoder['259']: needed an object with the token's name as"),
        ({"added_tokens_decoder": {"259": entry("")}}, ": added_tokens_decoder['259']: needed an object with the token's name as"),
        ({"added_tokens_decoder": {"259": entry("\ud800")}}, ": added_tokens_decoder['259']: needed an object with the token's name as"),
        ({"added_tokens_decoder": {"5": entry("y")}}, "needed an id from 258 to 259, between the ranks and vocab_size, found 5 ('y')"),
        ({"added_tokens_decoder": {"260": entry("y")}}, "needed an id from 258 to 259, between the ranks and vocab_size, found 260 ('y')"),
        (
            {"added_tokens_decoder": {"258": entry("y"), "259": entry("y")}},
            ": added token 259: needed a name of its own, found 'y', the name of 258",
        ),
        ({"added_tokens_decoder": {"258": entry("<|reserved_token_259|>")}}, ": added token 259: needed a name of its own"),
        (b'{"added_tokens_decoder": {"258": {"content": "a"}, "258": {"content": "b"}}}', ": key '258': needed once"),
    ],
)
def test_malformed_names(names: object, expected: str, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.open(write(tmp_path, GOOD, names), 260)
    assert str(tmp_path / "tokenizer_config.json") in str(caught.value)
    assert expected in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_repeated_key_among_very_many_is_found_at_once(tmp_path: Path) -> None:
    """Half an hour, where each key is looked for among all."""
    keys = ",".join(f'"{key}": 0' for key in [*range(200_000), 7])
    with pytest.raises(TokenizerError, match="key '7': needed once"):
        Tokenizer.open(write(tmp_path, GOOD, f"{{{keys}}}".encode()), 260)


def test_all_problems_at_once(tmp_path: Path) -> None:
    ranks = changed(3, b"??? 2")(changed(7, b"Bg== six")(changed(10, b"CA== 8")(GOOD)))
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.open(write(tmp_path, ranks, {"added_tokens_decoder": {"x": entry("y"), "259": 5}}), 260)
    assert [problem.what for problem in caught.value.problems] == [
        *("line 3", "line 7", "line 10", "line 10", "single bytes", "ranks"),
        *("added_tokens_decoder['x']", "added_tokens_decoder['259']"),
    ]


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").mkdir()
    with pytest.raises(TokenizerError, match="needed a regular file, found a directory"):
        Tokenizer.open(tmp_path, 260)


def test_lines_in_any_order(tmp_path: Path) -> None:
    shuffled = b"\n".join(sorted(GOOD.splitlines())) + b"\n"
    tokenizer = Tokenizer.open(write(tmp_path, shuffled), 258)
    assert tokenizer is not None
    assert tokenizer.encode("abc") == [257]


# ---- byte level


@pytest.mark.parametrize("size", [256, 259, 300, 512, 2048])
def test_byte_level_files(size: int, tmp_path: Path) -> None:
    for name, content in byte_level_files(size).items():
        (tmp_path / name).write_bytes(content)
    tokenizer = Tokenizer.open(tmp_path, size)
    assert tokenizer is not None
    assert (tokenizer.num_ranks, len(tokenizer.special)) == (256, size - 256)
    assert tokenizer.encode("añ") == list("añ".encode())
    assert ("<|end_of_msg|>" in tokenizer.special) == (size >= 259)
    if size >= 512:
        assert (tokenizer.special["[BOS]"], tokenizer.special["<|sep|>"], tokenizer.special["[PAD]"]) == (256, 261, 511)


def test_byte_level_needs_256() -> None:
    with pytest.raises(UsageError, match="at least 256, found 255"):
        byte_level_files(255)
