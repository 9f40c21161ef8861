"""A packed tape is found, is the right one, or is refused with what is wrong; `verify` finds every damage."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers_pack import SMALL, packed_from, source_of
from random_checkpoint import random_config, write_checkpoint

from lilliput.cli.main import run
from lilliput.engine import engine, planning
from lilliput.engine.packing import default_place
from lilliput.engine.source import Source
from lilliput.errors import ContentError, InputError
from lilliput.machine import durable
from lilliput.machine.costs import ASSUMED, Rates
from lilliput.machine.places import data_directory, packed_directory
from lilliput.machine.plan import Budget
from lilliput.model import config as config_module
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.weights import manifest, pack, pieces
from lilliput.weights.checked import verify
from lilliput.weights.pack_matrix import Storage
from lilliput.weights.packed import Packed, find_packed, open_packed


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("packed") / "m", random_config(random.Random(2), layers="KMK"), 2, shards=2)


@pytest.fixture(scope="module")
def made(model: Path) -> Path:
    out = model.parent / "made"
    packed_from(model, out, piece_bytes=SMALL)
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "copy")


def found(model: Path, given: Path | None = None, **options: Any) -> Packed | None:
    source = source_of(model)
    return find_packed(model, source.checkpoint, options.get("config_hash", source.config_hash), source.layout, given)


# --- finding --------------------------------------------------------------------------------------------------------------------


def test_found_by_itself_beside_the_checkpoint(model: Path, tmp_path: Path, made: Path) -> None:
    here = shutil.copytree(model, tmp_path / "a b" / "größe")
    assert found(here) is None
    shutil.copytree(made, tmp_path / "a b" / "größe.lilliput")
    packed = found(here)
    assert packed is not None
    assert packed.directory == tmp_path / "a b" / "größe.lilliput"
    assert packed.pieces == open_packed(made).pieces
    (tmp_path / "link").symlink_to(here)
    for spelling in (tmp_path / "link", here / ".", tmp_path / "a b" / ".." / "a b" / "größe"):
        assert found(spelling) is not None


def test_found_where_it_is_said_to_be(model: Path, made: Path) -> None:
    packed = found(model, made)
    assert packed is not None
    assert packed.nbytes == sum(piece.nbytes for piece in packed.pieces)
    assert packed.bf16_nbytes == sum(spec.nbytes for spec in source_of(model).layout.tape())


def test_fewer_layers_play_fewer_pieces(model: Path, made: Path) -> None:
    source = source_of(model)
    config = read_config(model)
    first = layout(replace(config, num_layers=1, is_kda=config.is_kda[:1]))
    packed = find_packed(model, source.checkpoint, source.config_hash, first, made)
    assert packed is not None
    whole = open_packed(made)
    assert packed.pieces == [p for p in whole.pieces if ".layers.0." in p.name or p.name == "lm_head.weight"]
    assert packed.files == whole.files


@pytest.mark.parametrize("linked", [True, False])
def test_a_snapshot_of_a_hub_has_its_tape_among_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool, model: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    repository = tmp_path / "hub" / "models--moonshotai--Kimi-K3"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for i, path in enumerate(sorted(model.iterdir())):
        shutil.copyfile(path, repository / "blobs" / str(i) if linked else snapshot / path.name)
        if linked:
            (snapshot / path.name).symlink_to(f"../../blobs/{i}")
    place = default_place(source_of(snapshot))
    assert place.parent == data_directory() / "packed"
    assert place.is_relative_to(tmp_path / "home")
    assert place.name.startswith("models--moonshotai--Kimi-K3@0123abcd-")
    packed_from(snapshot, place)
    assert found(snapshot) is not None
    assert sorted(p.name for p in repository.iterdir()) == ["blobs", "snapshots"]


def test_default_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    place = packed_directory(tmp_path / "m", [tmp_path / "hub" / "blobs" / "1"])
    assert place.parent == data_directory() / "packed"
    assert packed_directory(tmp_path / "m", [tmp_path / "m" / "x.safetensors"]) == tmp_path / "m.lilliput"
    assert packed_directory(tmp_path / "blobs", [tmp_path / "blobs" / "x.safetensors"]) == tmp_path / "blobs.lilliput"
    assert packed_directory(Path("/"), [Path("/x.safetensors")]).is_relative_to(tmp_path)


@pytest.mark.parametrize("stored", ["in place", "packed, all bf16", "packed, some k12"])
def test_engine_and_plan_ask_for_the_speed_of_the_same_kind(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    trunk = None
    if stored != "in place":
        trunk = tmp_path / "p"
        if "bf16" in stored:
            monkeypatch.setattr(pack, "storage", lambda *_, **__: Storage("bf16", b""))
        packed_from(model, trunk, forced="k12" in stored)
    asked: list[tuple[list[Path], str]] = []

    def known(files: Sequence[Path], kind: str, machine: tuple[int, str] | None = None) -> Rates:
        asked.append((list(files), kind))
        return ASSUMED

    for module in (engine, planning):
        monkeypatch.setattr(module, "known_rates", known)
    planning.Prospect(Source(model), threads=1, trunk=trunk).rates()
    engine.Engine(Source(model), budget=Budget(2_000_000_000), context=16, trunk=trunk).close()
    assert asked[0] == asked[1]
    assert asked[0][1] == ("k12" if "k12" in stored else "bf16")


# --- refusing -------------------------------------------------------------------------------------------------------------------


def test_another_config_is_named(model: Path, made: Path) -> None:
    with pytest.raises(InputError, match=r"tape\.json: config\.json: needed the one of .* \(SHA-256 0000") as caught:
        found(model, made, config_hash="0" * 64)
    assert "packed tape of another checkpoint" in str(caught.value)
    assert "`lilliput pack" in str(caught.value)


def test_the_hash_is_of_the_config_that_was_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config.json that is replaced meanwhile cannot lend its name to the weights of the other."""
    read = config_module.read_bytes
    monkeypatch.setattr(config_module, "read_bytes", lambda path, hint: read(path, hint) + b"\n")
    of_read = hashlib.sha256((model / "config.json").read_bytes() + b"\n").hexdigest()
    assert source_of(model).config_hash == Source(model).config_hash == of_read


def test_another_shard_is_named(model: Path, made: Path, tmp_path: Path) -> None:
    other = shutil.copytree(model, tmp_path / "m")
    shard = sorted(other.glob("*.safetensors"))[1]
    raw = shard.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    shard.write_bytes((length + 8).to_bytes(8, "little") + raw[8 : 8 + length] + b" " * 8 + raw[8 + length :])
    with pytest.raises(InputError, match=rf"{shard.name}: needed [\d,]+ bytes as here, found made from one of [\d,]+\n"):
        found(other, made)
    renamed = shutil.copytree(model, tmp_path / "n")
    for path in sorted(renamed.glob("*.safetensors")):
        path.rename(path.with_name("x" + path.name))
    index = renamed / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"model-0', '"xmodel-0'))
    with pytest.raises(InputError, match=r"shards: needed `xmodel-00001-of-000002\.safetensors` among them, found 2 others"):
        found(renamed, made)


def test_it_is_refused_in_its_default_place_too(model: Path, made: Path, tmp_path: Path) -> None:
    here = shutil.copytree(model, tmp_path / "m")
    shutil.copytree(made, tmp_path / "m.lilliput")
    (here / "config.json").write_bytes((here / "config.json").read_bytes() + b"\n")
    with pytest.raises(InputError, match="another checkpoint"):
        found(here)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("tape.k12", -1, r"tape\.k12: needed [\d,]+ bytes, found [\d,]+\nthe packed tape was truncated: remove"),
        ("tape.k12", -4096, "was truncated"),
        ("tape.k12", 4096, "is longer than it should be"),
    ],
)
def test_a_tape_of_another_length(model: Path, copy: Path, name: str, size: int, message: str) -> None:
    os.truncate(copy / name, (copy / name).stat().st_size + size)
    for use in (lambda: found(model, copy), lambda: open_packed(copy)):
        with pytest.raises(InputError, match=message) as caught:
            use()
        assert caught.value.exit_code == 2


def test_a_tape_without_its_pieces_or_its_manifest(model: Path, copy: Path, tmp_path: Path) -> None:
    (copy / "tape.k12").unlink()
    with pytest.raises(InputError, match=r"tape\.k12: needed the packed tape's pieces, found No such file"):
        found(model, copy)
    (copy / "tape.json").unlink()
    with pytest.raises(InputError, match=r"tape\.json: needed the manifest of a packed tape, found nothing"):
        found(model, copy)
    with pytest.raises(InputError, match=r"needed the manifest of a packed tape"):
        found(model, tmp_path / "nowhere")


def edited(copy: Path, edit: Callable[[dict[str, Any]], None], sign: bool = False) -> None:
    raw = json.loads((copy / "tape.json").read_bytes())
    edit(raw)
    if sign:
        contents = json.dumps(raw["contents"], separators=(",", ":")).encode()
        raw["checksum"] = manifest.checksum_of(contents)
        raw["contents"] = msgspec.Raw(contents)
    (copy / "tape.json").write_bytes(msgspec.json.encode(raw))


def test_another_format_version_is_named(model: Path, copy: Path) -> None:
    edited(copy, lambda raw: raw.update(version=2, contents={"all": "new"}))
    with pytest.raises(InputError, match=r"format: needed `lilliput packed tape`, version 1, found `lilliput packed tape`, version 2"):
        found(model, copy)


def test_a_flipped_bit_anywhere_in_the_manifest_is_found(model: Path, copy: Path) -> None:
    raw = (copy / "tape.json").read_bytes()
    rng = random.Random(0)
    for _ in range(200):
        bad = bytearray(raw)
        at = rng.randrange(len(raw) - 1)
        bad[at] ^= 1 << rng.randrange(8)
        (copy / "tape.json").write_bytes(bad)
        with pytest.raises((InputError, ContentError)):
            found(model, copy)


def test_a_pipe_for_a_manifest_is_not_waited_for(model: Path, copy: Path) -> None:
    (copy / "tape.json").unlink()
    os.mkfifo(copy / "tape.json")
    with pytest.raises(InputError, match=r"tape\.json: needed a regular file"):
        found(model, copy)


@pytest.mark.parametrize("length", [0, 1, 50, 500, -2])
def test_a_cut_manifest(model: Path, copy: Path, length: int) -> None:
    raw = (copy / "tape.json").read_bytes()
    (copy / "tape.json").write_bytes(raw[:length])
    with pytest.raises(ContentError, match=r"tape\.json: needed the manifest of a packed tape"):
        found(model, copy)


def set_piece(field: int, value: object) -> Callable[[dict[str, Any]], None]:
    def edit(raw: dict[str, Any]) -> None:
        raw["contents"]["matrices"][0]["pieces"][0][field] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (set_piece(0, 4), "needed a piece from row 0 on at 0, found"),
        (set_piece(1, 0), "needed a piece from row 0 on at 0, found 0 rows"),
        (set_piece(2, 4096), "needed a piece from row 0 on at 0, found"),
        (set_piece(2, -4096), "needed a piece from row 0 on at 0, found"),
        (set_piece(3, 10), "bytes and escapes of"),
        (set_piece(3, 1 << 40), "bytes and escapes of"),
        (set_piece(4, "xyz"), "needed a checksum of 16 hexadecimal digits, found 'xyz'"),
        (lambda raw: raw["contents"]["matrices"][0].update(kind="k11"), "needed bf16 or k12, found 'k11'"),
        (lambda raw: raw["contents"]["matrices"][0].update(columns=0), r"columns, found 0"),
        (lambda raw: raw["contents"]["matrices"][0].update(columns=64), r"needed \d+ x \d+|bytes and escapes of"),
        (lambda raw: raw["contents"]["matrices"].pop(), "needed .*, the end of the last piece, found|nothing of it"),
        (lambda raw: raw["contents"].update(nbytes=4096), "the end of the last piece"),
    ],
)
def test_a_manifest_that_is_signed_and_absurd(model: Path, copy: Path, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    edited(copy, edit, sign=True)
    with pytest.raises(InputError, match=message):
        found(model, copy)


def test_a_matrix_that_is_missing_is_named(model: Path, copy: Path) -> None:
    def drop_head(raw: dict[str, Any]) -> None:
        head = raw["contents"]["matrices"].pop()
        raw["contents"]["nbytes"] = head["pieces"][0][2]
        os.truncate(copy / "tape.k12", head["pieces"][0][2])

    edited(copy, drop_head, sign=True)
    with pytest.raises(InputError, match=r"lm_head\.weight: needed \d+ x \d+, found nothing of it"):
        found(model, copy)


def test_a_matrix_that_comes_twice_is_refused(model: Path, copy: Path) -> None:
    """The last piece of a matrix as a matrix of its own: rows add up, yet some would be computed twice and some never."""

    def split(raw: dict[str, Any]) -> None:
        matrices = raw["contents"]["matrices"]
        at, whole = next((i, m) for i, m in enumerate(matrices) if len(m["pieces"]) > 1)
        *front, last = whole["pieces"]
        rows = last[1]
        matrices.insert(at + 1, whole | {"rows": rows, "pieces": [[0, *last[1:]]]})
        whole.update(rows=whole["rows"] - rows, pieces=front)

    edited(copy, split, sign=True)
    for use in (lambda: found(model, copy), lambda: open_packed(copy)):
        with pytest.raises(InputError, match=r"tape\.json: \S+\.weight: needed this matrix once, found it again"):
            use()


def test_a_matrix_that_is_held_must_be_one_piece(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "is_held", lambda name: False)
    cut = packed_from(model, tmp_path / "p", piece_bytes=1)  # four rows each
    assert sum(piece.name.endswith(".kv_b_proj.weight") for piece in cut.pieces) > 1
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"kv_b_proj\.weight: needed one piece, because it is held whole, found \d+\n"):
        found(model, tmp_path / "p")


# --- verify and the command line ------------------------------------------------------------------------------------------------


def test_pack_and_verify_on_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = shutil.copytree(model, tmp_path / "a b")
    assert run(["pack", str(here), "--json", "-", "-t", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["command"], report["directory"]) == ("pack", str(tmp_path / "a b.lilliput"))
    assert found(here) is not None
    assert run(["verify", str(tmp_path / "a b.lilliput"), "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["pieces"] == report["pieces"]
    assert "all sound" in err
    assert run(["pack", str(here), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["verify", "{model}"], 2, "needed the directory of a packed tape, found a checkpoint: .*`lilliput pack '?{model}'?` writes one"),
        (["verify", "demo"], 2, "/demo: needed the directory of a packed tape, found a checkpoint: .* `lilliput pack demo` writes one"),
        (["verify", ""], 2, "PACKED_DIR: needed a path, found nothing"),
        (["verify", "{model}/config.json"], 2, "needed the directory of a packed tape, found a file"),
        (["verify", "{model}/absent"], 2, "needed the directory of a packed tape, found nothing"),
        (["pack", "{model}/absent"], 2, "needed a checkpoint directory"),
        (["pack", "{model}", "-t", "0"], 2, "--threads: needed 1 to 1024, found 0"),
        (["pack", "{model}", "-o", "/proc/x"], 2, "/proc/x: cannot be written: .*; choose another directory with `-o`"),
    ],
)
def test_wrong_arguments(
    model: Path, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "free_bytes", lambda directory: 10**12)  # /proc has none
    assert run([argument.format(model=model) for argument in arguments]) == code
    assert re.search(message.replace("{model}", re.escape(str(model))), capsys.readouterr().err)


def test_verify_of_a_checkpoint_names_its_packed_tape(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = shutil.copytree(model, tmp_path / "a b")
    assert run(["pack", str(here), "-q"]) == 0
    assert run(["verify", str(here)]) == 2
    assert f"found a checkpoint: its packed tape is verified by `lilliput verify '{here}.lilliput'`" in capsys.readouterr().err
    next(here.glob("*.safetensors")).unlink()  # what cannot be opened may have one all the same, and is no other error
    assert run(["verify", str(here)]) == 2
    assert "needed the directory of a packed tape, found a checkpoint" in capsys.readouterr().err


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << at % 8]))


def test_verify_finds_a_flipped_byte_anywhere(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = open_packed(copy)
    rng = random.Random(0)
    (size,) = packed.sizes
    for at in [0, size - 1, *rng.sample(range(size), 30)]:
        flip(copy / "tape.k12", at)
        number = max(i for i, piece in enumerate(packed.pieces) if piece.offset <= at)
        assert run(["verify", str(copy), "-q"]) == 4
        err = capsys.readouterr().err
        assert f"tape.k12: piece {number} ({packed.pieces[number].name}, rows {packed.pieces[number].row} to" in err
        assert f"damaged: 1 of {len(packed.pieces)} pieces" in err
        flip(copy / "tape.k12", at)
    assert run(["verify", str(copy), "-q"]) == 0


def test_verify_names_all_that_is_bad(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = open_packed(copy)
    np.random.default_rng(0).integers(1, 256, packed.sizes[0], np.uint8).tofile(copy / "tape.k12")
    assert run(["verify", str(copy)]) == 4
    err = capsys.readouterr().err
    assert "piece 0 (" in err
    assert f"... and {len(packed.pieces) - 20} more" in err
    with (copy / "tape.k12").open("r+b") as file:  # one large hole where pieces were
        file.truncate(0)
        file.truncate(packed.sizes[0])
    assert run(["verify", str(copy)]) == 4


def test_progress_reaches_the_end(made: Path, copy: Path) -> None:
    packed = open_packed(made)
    seen: list[tuple[int, int]] = []
    verify(packed, lambda done, total: seen.append((done, total)))
    assert len(seen) == len(packed.pieces)
    assert seen[-1] == (packed.nbytes, packed.nbytes)
