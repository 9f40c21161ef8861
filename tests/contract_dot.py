"""Rules 5 to 8 of the arithmetic contract and the stored formats once more, slowly, in numpy, written from docs/arithmetic.md."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from contract import ZERO, F, Floats, fma, fma_exact
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F)
E2M1 = np.concatenate([E2M1, -E2M1])


def bf16(w: Floats) -> Bytes:
    """Values as bf16 bytes [rows, 2 * in], cut (not rounded: any bf16 will do for a test)."""
    return np.ascontiguousarray((np.ascontiguousarray(w, F).view(np.uint32) >> 16).astype("<u2")).view(np.uint8)


def from_bf16(w: Bytes, rows: int, columns: int) -> Floats:
    words = np.frombuffer(w.tobytes(), "<u2").reshape(rows, columns)
    return (words.astype(np.uint32) << 16).view(F)


def _padded(x: Floats) -> Floats:
    wide = np.zeros((len(x), (x.shape[1] + 127) // 128 * 128), F)
    wide[:, : x.shape[1]] = x
    return wide


def _reduce(lanes: Floats) -> Floats:
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
    return lanes[..., 0] + ZERO


def dot(w: Floats, x: Floats) -> Floats:
    """Rule 5: [T, rows] from w [rows, in] and x [T, in]."""
    w, x = _padded(w)[None], _padded(x)[:, None]
    acc = np.zeros((len(x), w.shape[1], 16), F)
    for i in range(0, w.shape[2], 32):
        for parity in (0, 1):
            acc = fma(w[:, :, i + parity : i + 32 : 2], x[:, :, i + parity : i + 32 : 2], acc)
    return _reduce(acc)


def dot_rational(w: Floats, x: Floats) -> np.float32:
    """Rule 5 for one row and one token, every fused step from rational numbers."""
    acc = [F(0.0)] * 16
    for i, (a, b) in enumerate(zip(w, x, strict=True)):
        lane = (i >> 1) & 15
        if Fraction(float(a)) * Fraction(float(b)) + Fraction(float(acc[lane])):
            acc[lane] = fma_exact(float(a), float(b), float(acc[lane]))
        else:
            acc[lane] = F(0.0)
    return F(_reduce(np.array(acc, F)))


def transposed(w: Floats, x: Floats) -> Floats:
    """Rule 8: [T, columns] from w [depth, columns] and x [T, depth]."""
    acc = np.zeros((len(x), w.shape[1]), F)
    for d in range(len(w)):
        acc = fma(w[d][None], x[:, d, None], acc)
    return acc + ZERO


def mxfp4(packed: Bytes) -> Floats:
    """Unscaled values [rows, in] of nibbles [rows, in / 2]: the low nibble is the earlier element."""
    out = np.empty((packed.shape[0], 2 * packed.shape[1]), F)
    out[:, 0::2], out[:, 1::2] = E2M1[packed & 15], E2M1[packed >> 4]
    return out


def e8m0(scales: Bytes) -> Floats:
    return np.where(scales == 255, 0.0, np.ldexp(1.0, scales.astype(int) - 127)).astype(F)


def dot_mxfp4(packed: Bytes, scales: Bytes, x: Floats) -> Floats:
    """Rule 6: [T, rows]."""
    w, x = _padded(mxfp4(packed))[None], _padded(x)[:, None]
    rows, blocks = w.shape[1], w.shape[2] // 128
    scale = np.ones((rows, 4 * blocks), F)
    scale[:, : scales.shape[1]] = e8m0(scales)
    acc = np.zeros((len(x), rows, 16), F)
    lane = np.arange(16)
    for b in range(blocks):
        part = None
        for turn in range(8):  # the turn-th element of every lane, in increasing index
            i = 128 * b + 32 * (lane // 4) + 16 * (turn // 4) + 4 * (lane % 4) + turn % 4
            part = w[:, :, i] * x[:, :, i] if part is None else fma(w[:, :, i], x[:, :, i], part)
        acc = fma(part, scale[None, :, 4 * b + lane // 4], acc)
    return _reduce(acc)


def k12_table(high: Bytes) -> bytes:
    """The table of a tensor from all its high bytes."""
    counts = Counter(high.reshape(-1).tolist())
    order = sorted(range(256), key=lambda b: (not (b == 0 and counts[0]), -counts[b], b))
    return bytes(order[:16])


def _places() -> list[int]:
    """Byte of a tile's first half at which each of the columns 0 .. 63 lies."""
    return [16 * (c % 32 // 8) + (0 if c < 32 else 8) + c % 8 for c in range(64)]


def k12_encode(w: Bytes, rows: int, columns: int, table: bytes) -> bytes:
    weights = np.frombuffer(w.tobytes(), np.uint8).reshape(rows, columns, 2)
    quads, blocks = (rows + 3) // 4, (columns + 127) // 128
    tiles = np.zeros((quads, blocks, 4, 192), np.uint8)
    offsets, escapes, places = [0], [], _places()
    for q in range(quads):
        for c in range(columns):
            for r in range(min(4, rows - 4 * q)):
                low, high = (int(b) for b in weights[4 * q + r, c])
                tile, half, at = tiles[q, c // 128, r], c % 128 // 64, places[c % 64]
                tile[64 * half + at] = low
                if high in table:
                    tile[128 + at] |= table.index(high) << (4 * half)
                else:
                    escapes.append(c << 10 | r << 8 | high)
        offsets.append(len(escapes))
    return tiles.tobytes() + table + np.array(offsets, "<u4").tobytes() + np.array(escapes, "<u4").tobytes()


def k12_decode(piece: bytes, rows: int, columns: int) -> Bytes:
    quads, blocks, places = (rows + 3) // 4, (columns + 127) // 128, _places()
    end = quads * blocks * 4 * 192
    tiles = np.frombuffer(piece[:end], np.uint8).reshape(quads, blocks, 4, 192)
    table = np.frombuffer(piece[end : end + 16], np.uint8)
    offsets = np.frombuffer(piece[end + 16 : end + 16 + 4 * (quads + 1)], "<u4")
    escapes = np.frombuffer(piece[end + 16 + 4 * (quads + 1) :], "<u4")
    out = np.zeros((quads, blocks, 4, 128, 2), np.uint8)
    for half in (0, 1):
        out[..., 64 * half : 64 * half + 64, 0] = tiles[..., 64 * half : 64 * half + 64][..., places]
        out[..., 64 * half : 64 * half + 64, 1] = table[tiles[..., 128:192][..., places] >> (4 * half) & 15]
    whole = out.transpose(0, 2, 1, 3, 4).reshape(4 * quads, 128 * blocks, 2).copy()
    for q in range(quads):
        for e in escapes[offsets[q] : offsets[q + 1]].tolist():
            whole[4 * q + (e >> 8 & 3), e >> 10, 1] = e & 255
    return np.ascontiguousarray(whole[:rows, :columns]).reshape(-1)
