"""`_core.checksum` is XXH64 with seed 0: its published vectors, and its specification once more in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput import _core

P1, P2, P3, P4, P5 = 11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261
MASK = 2**64 - 1


def rotate(x: int, n: int) -> int:
    x &= MASK
    return (x << n | x >> (64 - n)) & MASK


def turn(lane: int, word: int) -> int:
    return rotate(lane + word * P2, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    at, h = 0, P5
    if len(data) >= 32:
        lanes = [P1 + P2, P2, 0, -P1]
        while len(data) - at >= 32:
            lanes = [turn(lane, int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little")) for i, lane in enumerate(lanes)]
            at += 32
        h = sum(rotate(lane, n) for lane, n in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ turn(0, lane)) * P1 + P4) & MASK
    h = h + len(data) & MASK
    while len(data) - at >= 8:
        h = rotate(h ^ turn(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4 & MASK
        at += 8
    if len(data) - at >= 4:
        h = rotate(h ^ (int.from_bytes(data[at : at + 4], "little") * P1 & MASK), 23) * P2 + P3 & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def checksum(data: bytes) -> int:
    return _core.checksum(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("data", "published"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_published_vectors(data: bytes, published: int) -> None:
    assert checksum(data) == xxh64(data) == published


@pytest.mark.parametrize("length", [*range(0, 70), 95, 96, 97, 1000, 4099])
def test_every_length_and_alignment(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length + 8, np.uint8)
    for start in (0, 1, 4, 7):
        assert _core.checksum(data[start : start + length]) == xxh64(data[start : start + length].tobytes())


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_flipped_bit_shows(data: bytes, draw: st.DataObject) -> None:
    flipped = bytearray(data)
    flipped[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    assert checksum(bytes(flipped)) != checksum(data)


def test_only_bytes_in_a_row() -> None:
    with pytest.raises(ValueError, match="data: needed uint8, found uint16"):
        _core.checksum(np.zeros(4, np.uint16))
    with pytest.raises(ValueError, match="data: needed a C-contiguous array"):
        _core.checksum(np.zeros(8, np.uint8)[::2])
