"""Which pieces of the tape are pinned: spread evenly by bytes, so that the disk has work all along the tape."""

from __future__ import annotations

from collections.abc import Sequence


def spread(piece_bytes: Sequence[int], room: int) -> frozenset[int]:
    """Indices of pieces of at most `room` bytes together; what a larger room pins contains what a smaller one does.

    Pieces are taken in the order in which the points 0, 1/2, 1/4, 3/4, 1/8, 5/8, 3/8, 7/8, ... of the tape first fall into them: after
    any number of points they are spread evenly, and each pin set is part of the next, so more memory never reads more.
    """
    if room >= sum(piece_bytes):
        return frozenset(range(len(piece_bytes)))
    bits = sum(piece_bytes).bit_length()
    order, begin = [], 0
    for index, nbytes in enumerate(piece_bytes):
        if nbytes:
            order.append((_rank(begin, begin + nbytes, bits), index))
        begin += nbytes
    pins, left = [], room
    for _, index in sorted(order):
        left -= piece_bytes[index]
        if left < 0:
            break
        pins.append(index)
    return frozenset(pins)


def _rank(begin: int, end: int, bits: int) -> int:
    """When the first of the points falls into [begin, end): its number with the bits reversed."""
    if begin == 0:
        return 0
    shift = ((begin - 1) ^ (end - 1)).bit_length() - 1
    point = (end - 1) >> shift << shift  # of the numbers in between the one with most trailing zeros
    return int(format(point, f"0{bits}b")[::-1], 2)
