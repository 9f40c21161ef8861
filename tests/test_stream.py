"""Text from tokens as they come: never half a character, and the same text as all at once."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput.text.stream import TextStream
from lilliput.text.tokenizer import Tokenizer
from lilliput.text.vocabulary import Vocabulary


@pytest.fixture
def byte_level() -> Tokenizer:
    return Tokenizer(Vocabulary((*(bytes((byte,)) for byte in range(256)), b"<|sep|>"), {"<|sep|>": 256}))


# Every beginning of a valid UTF-8 sequence that is not yet a whole one (the last byte of a sequence takes any of 64 values).
BEGINNINGS = {
    character[:k]
    for code in range(0x80, 0x110000, 64)
    if not 0xD800 <= code < 0xE000
    for character in (chr(code).encode(),)
    for k in range(1, len(character))
}

AWKWARD = st.lists(
    st.binary(max_size=4)
    | st.text(max_size=2).map(str.encode)
    | st.sampled_from([b"\xf0\x9f", b"\x98\x80", b"\xed\xa0", b"\x80", b"\xe0\x9f", b"\xf4\x90", b"\xf4\x8f\xbf", b"\xc0", b"\xf5", b""])
)


@settings(max_examples=500)
@given(AWKWARD)
def test_stream_holds_back_exactly_what_can_still_become_a_character(tokens: list[bytes]) -> None:
    stream, shown, raw = TextStream(tokens), "", b""
    for i, token in enumerate(tokens):
        shown += stream.push(i)
        raw += token
        held = next((k for k in (3, 2, 1) if raw[-k:] in BEGINNINGS and len(raw) >= k), 0)
        assert shown == raw[: len(raw) - held].decode("utf-8", "replace")
        assert stream.pending == held
    assert shown + stream.finish() == raw.decode("utf-8", "replace")
    assert stream.pending == 0


@pytest.mark.parametrize("character", ["é", "漢", "한", "😀", "👩‍🚀"])
def test_characters_in_pieces(character: str, byte_level: Tokenizer) -> None:
    raw = character.encode()
    for count in range(1, min(len(raw), 4) + 1):
        for cuts in combinations(range(1, len(raw)), count - 1):
            bounds = [0, *cuts, len(raw)]
            tokens = [raw[a:b] for a, b in pairwise(bounds)]
            stream = TextStream(tokens)
            parts = [stream.push(i) for i in range(len(tokens))]
            assert "".join(parts) == character
            assert "\ufffd" not in "".join(parts)
            assert stream.finish() == ""
    stream = byte_level.stream()
    assert "".join(map(stream.push, byte_level.encode(character))) == character


def test_stream_cut_in_the_middle(byte_level: Tokenizer) -> None:
    stream = byte_level.stream()
    assert [stream.push(byte) for byte in b"a\xf0\x9f\x98"] == ["a", "", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.push(ord("b")) == "b"  # as new
    # A name ends a character that never will be whole.
    assert [stream.push(token) for token in (0xF0, 0x9F, byte_level.special["<|sep|>"])] == ["", "", "\ufffd<|sep|>"]
