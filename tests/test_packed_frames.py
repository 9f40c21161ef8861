"""Packed pieces whose checksum is right and whose frame is not: somebody wrote them so. Named where they are read, and by `verify`."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from helpers_pack import SMALL, packed_from
from random_checkpoint import random_config, write_checkpoint

from lilliput.cli.main import run
from lilliput.weights import manifest
from lilliput.weights.packed import open_packed
from lilliput.weights.pieces import PieceSpec


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = write_checkpoint(tmp_path_factory.mktemp("frames") / "m", random_config(random.Random(2), layers="KMK"), 2, shards=2)
    packed_from(here, here.parent / "made", piece_bytes=SMALL, forced=True)
    return here


def forge(directory: Path, number: int, at: int, word: int) -> PieceSpec:
    """Write a uint32 into the frame of a piece, `at` bytes behind its tiles, and sign everything again."""
    piece = open_packed(directory).pieces[number]
    assert piece.kind == "k12"
    raw = bytearray((directory / manifest.TAPE).read_bytes())
    tiles = manifest.k12_bytes(piece.rows, piece.columns) - 16 - 4 * (-(-piece.rows // 4) + 1)
    begin = piece.offset + tiles + at
    assert begin + 4 <= piece.offset + piece.nbytes
    raw[begin : begin + 4] = word.to_bytes(4, "little")
    (directory / manifest.TAPE).write_bytes(raw)
    signed = json.loads((directory / manifest.MANIFEST).read_bytes())
    checksum = manifest.checksum_of(np.frombuffer(raw[piece.offset : piece.offset + piece.nbytes], np.uint8))
    for matrix in signed["contents"]["matrices"]:
        for line in matrix["pieces"]:
            if line[2] == piece.offset:
                line[4] = checksum
    contents = json.dumps(signed["contents"], separators=(",", ":")).encode()
    signed |= {"checksum": manifest.checksum_of(contents), "contents": msgspec.Raw(contents)}
    (directory / manifest.MANIFEST).write_bytes(msgspec.json.encode(signed))
    return piece


@pytest.mark.parametrize(("at", "word"), [(16, 1), (20, 2**32 - 1), (20, 10**6)], ids=["first offset", "offset", "count"])
@pytest.mark.parametrize("of", ["first", "kv_b", "last"])
def test_a_frame_that_is_wrong_is_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], of: str, at: int, word: int
) -> None:
    directory = shutil.copytree(model.parent / "made", tmp_path / "tape")
    names = [piece.name for piece in open_packed(directory).pieces]
    number = {"first": 0, "last": len(names) - 1}.get(of, next(i for i, name in enumerate(names) if "kv_b" in name))
    piece = forge(directory, number, at, word)
    assert run(["verify", str(directory)]) == 4
    assert f"tape.k12: piece {number} ({piece.name}, rows " in (error := capsys.readouterr().err)
    assert f"damaged: 1 of {len(names)} pieces" in error
    for memory in ("60MB", "2GB"):  # through the ring, and pinned
        assert run(["generate", str(model), "--ids", "1", "-n", "2", "--trunk", str(directory), "--memory", memory, "-q"]) in (3, 4)
        error = capsys.readouterr().err
        if "not enough" not in error:
            assert re.search(rf"tape\.k12: piece at byte {piece.offset} .* of {re.escape(piece.name)}\) is not one \(K12 piece", error)
            assert "`lilliput pack`" in error
    assert "is not one" in error


def test_an_escape_that_is_wrong_is_named(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = shutil.copytree(model.parent / "made", tmp_path / "tape")
    pieces = open_packed(directory).pieces
    number = next((i for i, p in enumerate(pieces) if p.nbytes > manifest.k12_bytes(p.rows, p.columns)), None)
    assert number is not None, "no piece has an escape"
    quads = -(-pieces[number].rows // 4)
    forge(directory, number, 16 + 4 * (quads + 1), 2**32 - 1)
    assert run(["verify", str(directory)]) == 4
    assert re.search(rf"piece {number} .*escape", capsys.readouterr().err)
