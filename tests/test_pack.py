"""A packed tape is the same weights, in the tape's order, in three quarters of the bytes; nothing is written that need not be."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers_checkpoint import nested, small_text
from helpers_checkpoint import write_checkpoint as write_zeros
from helpers_pack import SMALL, assert_same_weights, files_of, packed_from, source_of, stored_rows
from random_checkpoint import make_tensors, random_config, write_checkpoint, write_safetensors

from lilliput import _core
from lilliput.errors import ContentError, DoesNotFitError, LilliputError, UsageError
from lilliput.machine import durable
from lilliput.weights import direct, feed
from lilliput.weights import pack as packing
from lilliput.weights.pack import pack
from lilliput.weights.pack_matrix import fits, tape_matrices
from lilliput.weights.packed import open_packed
from lilliput.weights.pieces import PIECE_BYTES

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def tape_names(directory: Path) -> list[str]:
    names = [spec.name for spec in source_of(directory).layout.tape()]
    return names if HEAD in names else [*names, HEAD]


def plain_model(directory: Path, seed: int = 5, **fields: object) -> Path:
    return write_checkpoint(directory, random_config(random.Random(seed), layers="KMK", **fields), seed, shards=2)


@pytest.mark.parametrize("forced", [False, True])
def test_every_weight_comes_back_in_the_order_of_the_tape(tiny_synth: Path, tmp_path: Path, forced: bool) -> None:
    packed = packed_from(tiny_synth, tmp_path / "p", piece_bytes=SMALL, forced=forced)
    assert_same_weights(packed, tiny_synth, tape_names(tiny_synth))
    kinds = packed.matrices.values()
    assert set(kinds) == ({"k12"} if forced else {"k12", "bf16"})
    assert len(packed.pieces) > 3 * len(kinds)
    assert packed.pieces[-1].name == HEAD


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_odd_shapes(tmp_path: Path, seed: int) -> None:
    model = plain_model(tmp_path / "m", seed, tie_word_embeddings=False)
    packed = packed_from(model, tmp_path / "p", piece_bytes=1000, forced=True, threads=3)
    assert_same_weights(packed, model, tape_names(model))


def test_the_head_of_tied_embeddings_is_the_embedding(tmp_path: Path) -> None:
    model = plain_model(tmp_path / "m", tie_word_embeddings=True)
    packed = packed_from(model, tmp_path / "p", piece_bytes=SMALL)
    names = tape_names(model)
    assert names[-1] == HEAD
    assert EMBEDDING not in names
    assert_same_weights(packed, model, names, **{HEAD: EMBEDDING})


def test_kv_b_is_one_piece_and_every_piece_starts_at_a_block(tiny_synth: Path, tmp_path: Path) -> None:
    packed = packed_from(tiny_synth, tmp_path / "p", piece_bytes=SMALL)
    at = 0
    for piece in packed.pieces:
        assert piece.offset == at
        at = -(-(at + piece.nbytes) // 4096) * 4096
        if ".kv_b_proj." in piece.name:
            assert (piece.row, piece.rows) == (0, stored_rows(tiny_synth, piece.name).shape[0])
        elif piece.row + piece.rows < stored_rows(tiny_synth, piece.name).shape[0]:
            assert piece.rows % 4 == 0
            assert 2 * piece.rows * piece.columns <= max(SMALL, 8 * piece.columns)
    assert packed.sizes == (at,)


def test_checksums_are_of_the_bytes_in_the_file(tiny_synth: Path, tmp_path: Path) -> None:
    packed = packed_from(tiny_synth, tmp_path / "p", piece_bytes=SMALL)
    raw = np.fromfile(packed.files[0], np.uint8)
    for piece in packed.pieces:
        assert piece.checksum == _core.checksum(raw[piece.offset : piece.offset + piece.nbytes])


def test_three_quarters_of_the_bytes(mini: Path, tmp_path: Path) -> None:
    """Matrices of the release have whole tiles (columns a multiple of 128, rows of 4) and are wide; so are most of `mini`."""
    source = source_of(mini)
    summary = pack(source, tmp_path / "p", threads=2)
    packed = open_packed(tmp_path / "p")
    alike = [p for p in packed.pieces if p.columns % 128 == 0 and p.columns >= 1024 and p.rows >= 64]
    share = sum(p.nbytes for p in alike) / sum(2 * p.rows * p.columns for p in alike)
    assert share <= 0.751
    assert sum(2 * p.rows * p.columns for p in alike) > 0.8 * packed.bf16_nbytes
    assert summary["bytes_read"] == packed.bf16_nbytes == sum(spec.nbytes for spec in source.layout.tape())  # once each
    file = np.memmap(packed.files[0], np.uint8, "r")
    for piece in packed.pieces[::10]:
        rows = file[piece.offset : piece.offset + piece.nbytes]
        decoded = _core.k12_decode(rows, piece.rows, piece.columns) if piece.kind == "k12" else rows
        expected = stored_rows(mini, piece.name)[piece.row : piece.row + piece.rows]
        assert decoded.tobytes() == expected.tobytes(), piece.name


def test_a_matrix_that_would_not_become_smaller_stays_as_it_is(tmp_path: Path) -> None:
    model = noisy_model(tmp_path / "m")
    packed = packed_from(model, tmp_path / "p")
    assert packed.matrices[HEAD] == "bf16"
    assert_same_weights(packed, model, tape_names(model))
    forced = packed_from(model, tmp_path / "f", forced=True)
    assert set(forced.matrices.values()) == {"k12"}
    assert forced.nbytes > packed.nbytes
    assert_same_weights(forced, model, tape_names(model))


def noisy_model(directory: Path) -> Path:
    """The head holds every bit pattern alike: no sixteen high bytes are most of it."""
    raw = random_config(random.Random(1), layers="KM", hidden_size=128, tie_word_embeddings=False, vocab_size=512)
    tensors = make_tensors(raw, 1)
    noise = np.random.default_rng(0).integers(0, 1 << 16, (512, 128), np.uint16)
    tensors = [replace(t, values=noise) if t.name == HEAD else t for t in tensors]
    write_checkpoint(directory, raw, 1)
    for path in [*directory.glob("*.safetensors"), directory / "model.safetensors.index.json"]:
        path.unlink()
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 5}, {"memory": 0}, {"memory": 100_000}, {"memory": 10**8}])
def test_threads_and_memory_do_not_show(tiny_synth: Path, tmp_path: Path, options: dict[str, int]) -> None:
    packed_from(tiny_synth, tmp_path / "a", piece_bytes=SMALL)
    packed_from(tiny_synth, tmp_path / "b", piece_bytes=SMALL, **options)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_what_does_not_fit_in_memory_is_read_twice_and_nothing_else(tiny_synth: Path, tmp_path: Path) -> None:
    source = source_of(tiny_synth)
    tape = sum(spec.nbytes for spec in source.layout.tape())
    once = pack(source, tmp_path / "a", threads=2, piece_bytes=SMALL)
    assert once["bytes_read"] == tape
    twice = pack(source, tmp_path / "b", threads=2, piece_bytes=SMALL, memory=0)
    assert tape < twice["bytes_read"] < 2 * tape  # some matrices are a single piece


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_stays_small(mini: Path, tmp_path: Path) -> None:
    """Interpreter and libraries 40 MB, the ring 184 MB, three pieces per thread. (`ru_maxrss` would count the process that forked.)"""
    program = (
        "from pathlib import Path; from lilliput.cli.main import run; "
        f"code = run(['pack', {str(mini)!r}, '-o', {str(tmp_path / 'p')!r}, '-t', '2', '-q']); "
        "print(code, Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True).stdout
    code, peak = map(int, out.split())
    assert code == 0
    assert peak * 1024 < 270_000_000


def test_direct_reading_refused_is_no_fault(tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_from(tiny_synth, tmp_path / "a", piece_bytes=SMALL)
    read = os.preadv
    refused: list[int] = []

    def refuse(fd: int, buffers: list[memoryview], offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(fd)
            raise OSError(22, "Invalid argument")
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", refuse)
    packed_from(tiny_synth, tmp_path / "b", piece_bytes=SMALL)
    assert refused
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_short_reads_are_continued(tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_from(tiny_synth, tmp_path / "a")
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: read(fd, [buffers[0][:12288]], offset))
    packed_from(tiny_synth, tmp_path / "b")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_a_shard_cut_off_while_it_is_read(tmp_path: Path) -> None:
    model = plain_model(tmp_path / "m")
    source = source_of(model)
    shard = max(source.checkpoint.files, key=lambda path: path.stat().st_size)
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(LilliputError, match=r"needed [\d,]+ bytes, found [\d,]+: it was replaced while in use"):
        pack(source, tmp_path / "p", threads=2)
    file = direct.DirectFile(shard, shard.stat().st_size)
    os.truncate(shard, 100)
    with pytest.raises(LilliputError, match=r"model-.*found the end of the file at 100: it was truncated"):
        file.read(50, 8192, direct.memory(direct.room(8192)))
    file.close()


def test_a_piece_that_does_not_decode_to_itself_ends_it(tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = _core.k12_encode_into

    def faulty(piece: np.ndarray, *arguments: object) -> int:
        nbytes = encode(piece, *arguments)
        piece[5] ^= 1
        return nbytes

    monkeypatch.setattr(_core, "k12_encode_into", faulty)
    with pytest.raises(ContentError, match=r"proj\.weight: a packed piece did not decode to what it was made from"):
        packed_from(tiny_synth, tmp_path / "p")
    assert not (tmp_path / "p" / "tape.json").exists()


# --- holes ----------------------------------------------------------------------------------------------------------------------

WIDE = small_text(vocab_size=4096, hidden_size=512, intermediate_size=2048, bos_token_id=37, eos_token_id=38, pad_token_id=39)


def test_a_tape_of_holes_takes_no_room_and_is_not_read(tmp_path: Path) -> None:
    model = write_zeros(tmp_path / "m", nested(WIDE))
    summary = pack(source_of(model), tmp_path / "p", threads=2)
    assert summary["bytes_bf16"] > 10_000_000
    assert summary["bytes_on_disk"] == 0
    assert summary["bytes_read"] <= 4 * 2**20  # the matrices that share a block with a header
    assert_same_weights(open_packed(tmp_path / "p"), model, tape_names(model))


def test_only_what_is_real_takes_room(tmp_path: Path) -> None:
    model = write_zeros(tmp_path / "m", nested(WIDE))
    values = np.random.default_rng(0).integers(0x3C00, 0x4000, (4, 512), np.uint16)
    tensor = source_of(model).checkpoint.tensors[HEAD]
    with source_of(model).checkpoint.files[tensor.file].open("r+b") as file:
        file.seek(tensor.offset + 2 * 512 * 1000)
        file.write(values.tobytes())
    packed = packed_from(model, tmp_path / "p", piece_bytes=1 << 18)
    assert (stored_rows(model, HEAD)[1000:1004] == values).all()
    assert_same_weights(packed, model, tape_names(model))
    pieces_of_head = sum(p.name == HEAD for p in packed.pieces)
    assert pieces_of_head == 16
    assert durable.allocated(packed.files[0]) <= 4096 * (pieces_of_head + 3)  # a table in each piece, and the four rows


def test_file_systems_that_know_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_zeros(tmp_path / "m", nested(WIDE))
    packed_from(model, tmp_path / "a")
    monkeypatch.setattr(direct.DirectFile, "is_hole", lambda self, offset, nbytes: False)
    summary = pack(source_of(model), tmp_path / "b", threads=2)
    assert summary["bytes_read"] == summary["bytes_bf16"]
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert summary["bytes_on_disk"] == 0  # zero blocks are left out all the same


def test_the_full_size_packs_into_little_disk(k3_sparse: Path, tmp_path: Path) -> None:
    source = source_of(k3_sparse)
    twice = [m for m in tape_matrices(source.checkpoint, source.layout, PIECE_BYTES) if not fits(m, packing.MEMORY)]
    assert sum(m.nbytes for m in twice) == 3 * 33792 * 7168 * 2 + 163840 * 7168 * 2  # layer 0's MLP and the head: 3.4 %
    summary = pack(source, tmp_path / "p", threads=2)
    assert summary["bytes_bf16"] == 111_107_440_640
    assert summary["ratio"] <= 0.751
    assert summary["bytes_on_disk"] < 800_000_000
    assert summary["bytes_read"] < 2_500_000_000


# --- room and place -------------------------------------------------------------------------------------------------------------


def test_too_little_disk_is_refused_before_anything_is_written(tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = pack(source_of(tiny_synth), tmp_path / "p", threads=2)["bytes_on_disk"]
    monkeypatch.setattr(durable, "free_bytes", lambda directory: needed - 1)
    with pytest.raises(DoesNotFitError, match=r"needs 0\.00 GB of free disk, found 0\.00 GB.*`-o`"):
        pack(source_of(tiny_synth), tmp_path / "new" / "q", threads=2)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("noisy", [False, True])
def test_what_is_asked_for_is_enough_and_not_much_more(mini: Path, tmp_path: Path, noisy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = noisy_model(tmp_path / "m") if noisy else mini
    asked: list[int] = []
    monkeypatch.setattr(packing, "estimate", lambda *a, **k: asked.append(estimate(*a, **k)) or asked[-1])
    summary = pack(source_of(model), tmp_path / "p", threads=2)
    total = sum(asked) // 2  # before the start, and when the directory is open
    assert summary["bytes_on_disk"] <= total <= 1.01 * summary["bytes_on_disk"] + 4096 * summary["pieces"] * noisy


estimate = packing.estimate


def test_holes_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_zeros(tmp_path / "m", nested(WIDE))
    monkeypatch.setattr(durable, "free_bytes", lambda directory: 4_500_000)
    assert pack(source_of(model), tmp_path / "p", threads=2)["bytes"] > 7_500_000


def test_nothing_is_written_into_the_checkpoint(tmp_path: Path) -> None:
    model = plain_model(tmp_path / "m")
    before = {p: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).digest()) for p in model.iterdir()}
    for place in (model, model / "packed", model / ".." / "m" / "x"):
        with pytest.raises(UsageError, match="needed a place outside of the checkpoint"):
            pack(source_of(model), place, threads=1)
    pack(source_of(model), tmp_path / "p", threads=1)
    assert {p: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).digest()) for p in model.iterdir()} == before


def test_a_file_in_its_place(tiny_synth: Path, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("mine")
    with pytest.raises(UsageError, match="needed a directory, or a name that is free, found a file"):
        pack(source_of(tiny_synth), tmp_path / "p", threads=1)


def test_packing_again_does_nothing(tiny_synth: Path, tmp_path: Path) -> None:
    first = pack(source_of(tiny_synth), tmp_path / "p", threads=1)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "p").iterdir()}
    again = pack(source_of(tiny_synth), tmp_path / "p", threads=1)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "p").iterdir()} == before
    assert again["bytes_read"] == 0
    assert again["bytes"] == first["bytes"]


def test_a_directory_with_another_tape_is_left_alone(tiny_synth: Path, tmp_path: Path) -> None:
    pack(source_of(tiny_synth), tmp_path / "p", threads=1)
    before = files_of(tmp_path / "p")
    other = plain_model(tmp_path / "m")
    with pytest.raises(UsageError, match="holds the packed tape of another checkpoint"):
        pack(source_of(other), tmp_path / "p", threads=1)
    with pytest.raises(UsageError, match="made with other parameters"):
        pack(source_of(tiny_synth), tmp_path / "p", threads=1, forced=True)
    assert files_of(tmp_path / "p") == before
    os.truncate(tmp_path / "p" / "tape.k12", 4096)
    with pytest.raises(UsageError, match=r"tape\.k12 is missing or has another size; remove"):
        pack(source_of(tiny_synth), tmp_path / "p", threads=1)


def test_the_feed_holds_as_much_as_it_may_and_no_more(tmp_path: Path) -> None:
    """Every byte once and right, in order, at any size of the ring, however long the caller keeps the items."""
    raw = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8)
    raw.tofile(tmp_path / "f")
    rng = random.Random(0)
    file = direct.DirectFile(tmp_path / "f", raw.size)
    for _ in range(30):
        cuts = sorted(rng.sample(range(1, raw.size), 40))
        extents = [feed.Extent(0, a, b - a, i) for i, (a, b) in enumerate(zip([0, *cuts], [*cuts, raw.size], strict=True))]
        most = 2 * max(direct.room(e.nbytes) for e in extents) + rng.randrange(100_000)
        with feed.Feed([file], iter(extents), most, lambda extent, data: int(data.sum())) as items:
            held: list[feed.Item[int]] = []
            for extent in extents:
                while held and (not items.ready or rng.random() < 0.3):
                    items.release(held.pop(rng.randrange(len(held)) if rng.random() < 0.5 else 0))
                item = items.next()
                result = item.result()
                assert result is not None
                expected = raw[extent.offset : extent.offset + extent.nbytes]
                assert result[0].tobytes() == expected.tobytes()
                assert result[1] == int(expected.sum())
                held.append(item)
            for item in held:  # still what they were: nobody was given their memory
                assert (item.result() or (raw, 0))[0].tobytes() == raw[
                    item.extent.offset : item.extent.offset + item.extent.nbytes
                ].tobytes()
            assert items.bytes_read == raw.size
    file.close()


def test_links_to_the_checkpoint_are_followed(tiny_synth: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1234"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, path in enumerate(sorted(tiny_synth.iterdir())):
        shutil.copyfile(path, blobs / f"{i:040x}")
        (snapshot / path.name).symlink_to(Path("../../blobs") / f"{i:040x}")
    packed_from(snapshot, tmp_path / "p")
    packed_from(tiny_synth, tmp_path / "q")
    assert files_of(tmp_path / "p") == files_of(tmp_path / "q")
