"""Which files of a directory are the checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from helpers_checkpoint import (
    NAMES,
    SMALL,
    layout_of,
    opened,
    refused,
    same,
    tensors_of,
    write_checkpoint,
    write_index,
    write_tensors,
)

from lilliput.machine.fetching import fetch_again


def test_the_index_decides(small_model: Path) -> None:
    """faults.md 8: a finished copy, another variant and a broken stray are not looked at."""
    shutil.copy(small_model / NAMES[0], small_model / "model-00001-of-000002 (1).safetensors")
    (small_model / "model.safetensors").write_bytes(b"garbage")
    assert [p.name for p in opened(small_model, cache=False).files] == list(NAMES)


def test_odd_names(tmp_path: Path) -> None:
    """faults.md 9: the index is followed, not a pattern; sub-folders, spaces and other scripts included."""
    model = write_checkpoint(tmp_path / "m", SMALL)
    odd = ["model.safetensors-00001-of-00002.safetensors", "sub folder/часть 2"]
    (model / "sub folder").mkdir()
    index = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"]
    for name, new in zip(NAMES, odd, strict=True):
        (model / name).rename(model / new)
        index = {k: new if v == name else v for k, v in index.items()}
    write_index(model, index)
    assert [p.name for p in opened(model).files] == [odd[0], "часть 2"]


def test_headers_win_over_the_index(small_model: Path) -> None:
    path = small_model / "model.safetensors.index.json"
    index = json.loads(path.read_text())["weight_map"]
    expected = opened(small_model, cache=False)
    write_index(small_model, {k: NAMES[1] if v == NAMES[0] else NAMES[0] for k, v in index.items()})
    assert same(opened(small_model, cache=False), expected)
    write_index(small_model, {"a": NAMES[0], "b": NAMES[1]})
    assert same(opened(small_model, cache=False), expected)


def test_missing_shards_all_at_once(tmp_path: Path) -> None:
    """faults.md 7 and 10: exactly which, and the command that fetches them; in a directory that needs quoting."""
    model = write_checkpoint(tmp_path / "my models", SMALL, shards=5)
    for n in (2, 4):
        (model / f"model-0000{n}-of-000005.safetensors").unlink()
    error = refused(model)
    assert [p.what for p in error.problems] == ["model-00002-of-000005.safetensors", "model-00004-of-000005.safetensors"]
    assert error.hint == f"run `hf download moonshotai/Kimi-K3 --local-dir '{model}'` to fetch them"
    assert error.hint in str(error)


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_each_shard_is_missed(tmp_path: Path, gone: int) -> None:
    model = write_checkpoint(tmp_path / "m", SMALL, shards=3)
    name = f"model-0000{gone}-of-000003.safetensors"
    (model / name).unlink()
    error = refused(model)
    assert [p.what for p in error.problems] == [name]
    assert "to fetch it" in error.hint
    (model / "model.safetensors.index.json").unlink()
    assert [p.what for p in refused(model).problems] == [name]


def test_many_missing_shards_are_all_named(tmp_path: Path) -> None:
    names = [f"model-{n:05}-of-000096.safetensors" for n in range(1, 97)]
    write_index(tmp_path, {str(n): name for n, name in enumerate(names)})
    message = str(refused(tmp_path))
    assert all(name in message for name in names)
    assert "96 of them missing" in message


def test_single_file_without_index(tmp_path: Path) -> None:
    for name in ("model.safetensors", "whatever.safetensors"):
        directory = tmp_path / name
        directory.mkdir()
        write_tensors(directory / name, tensors_of(layout_of(SMALL)))
        (directory / "notes.txt").write_text("no shard")
        assert [p.name for p in opened(directory).files] == [name]


def test_numbered_set_without_index(small_model: Path) -> None:
    (small_model / "model.safetensors.index.json").unlink()
    assert [p.name for p in opened(small_model).files] == list(NAMES)
    assert opened(small_model).from_sidecar
    write_tensors(small_model / "stray.safetensors", [("x", "U8", (1,))])
    assert [p.name for p in opened(small_model).files] == list(NAMES)


@pytest.mark.parametrize("stray", ["model.safetensors", "model-00001-of-00003.safetensors", "other-00001-of-000002.safetensors"])
def test_ambiguous_without_index(small_model: Path, stray: str) -> None:
    (small_model / "model.safetensors.index.json").unlink()
    shutil.copy(small_model / NAMES[0], small_model / stray)
    error = refused(small_model)
    assert "model.safetensors.index.json" in error.needed
    assert "not one numbered set" in error.found


def test_no_checkpoint(tmp_path: Path) -> None:
    assert "no safetensors file at all" in str(refused(tmp_path))
    assert "hf download" in refused(tmp_path).hint
    assert refused(tmp_path / "gone").found == "nothing"
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file").found == "a file"
    assert refused(Path("~no-such-user-at-all/x"))
    assert refused(Path("a\0b"))


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "Пользователь 用户 🙂"
    write_checkpoint(home / "a model", SMALL)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    found = [opened(place, cache=c) for place in ("~/a model", "a model", home / "a model") for c in (True, False)]
    assert len({f.files for f in found}) == 1
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copytree(home / "a model", os.fsdecode(raw))
    for _ in range(2):
        assert same(opened(Path(os.fsdecode(raw))), found[0])


def test_hugging_face_snapshot(tmp_path: Path, small_model: Path) -> None:
    """Relative links into a folder of blobs, as the hub's cache has them; a removed blob is a missing shard."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for n, path in enumerate(sorted(small_model.iterdir())):
        path.rename(blobs / f"{n:064x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{n:064x}")
    for sidecar in (False, True):
        found = opened(snapshot)
        assert found.from_sidecar == sidecar
        assert all(p.parent == blobs for p in found.files)
    found.files[1].unlink()
    assert [p.what for p in refused(snapshot).problems] == [NAMES[1]]


def test_things_in_the_place_of_shards(small_model: Path) -> None:
    (small_model / NAMES[0]).unlink()
    (small_model / NAMES[0]).symlink_to(NAMES[0])
    assert [p.what for p in refused(small_model).problems] == [NAMES[0]]
    (small_model / NAMES[0]).unlink()
    os.mkfifo(small_model / NAMES[0])
    assert "a regular file" in str(refused(small_model))
    (small_model / NAMES[0]).unlink()
    (small_model / NAMES[0]).mkdir()
    assert "a regular file" in str(refused(small_model))


def test_malformed_shards_are_all_named(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "m", SMALL, shards=4)
    with (model / "model-00002-of-000004.safetensors").open("r+b") as file:
        file.truncate(5000)
    (model / "model-00003-of-000004.safetensors").write_bytes(b"<html>Forbidden</html>")
    error = refused(model)
    assert [Path(p.file).name for p in error.problems] == ["model-00002-of-000004.safetensors", "model-00003-of-000004.safetensors"]
    assert "cut short" in str(error)
    assert "<html>Forbidden" in str(error)
    names = "model-00002-of-000004.safetensors model-00003-of-000004.safetensors"
    command = f"hf download moonshotai/Kimi-K3 {names} --local-dir {model} --force-download"
    assert error.hint == f"if this is a download, `{command}` fetches them again"


def test_a_damaged_shard_is_named_as_the_repository_names_it(small_model: Path) -> None:
    """Not by the place that a link of a snapshot leads to."""
    blob = small_model.parent / "0a1b"
    (small_model / NAMES[1]).rename(blob)
    (small_model / NAMES[1]).symlink_to(blob)
    os.truncate(blob, 100)
    error = refused(small_model)
    assert error.file == str(blob)
    assert f"`hf download moonshotai/Kimi-K3 {NAMES[1]} --local-dir {small_model} --force-download` fetches it again" in error.hint


def test_what_came_with_the_package_comes_again_with_it(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lilliput.machine.places._PACKAGE", small_model.parent)
    os.truncate(small_model / NAMES[1], 100)
    assert "install lilliput again" in refused(small_model).hint
    (small_model / NAMES[1]).unlink()
    hint = refused(small_model).hint
    assert "install lilliput again" in hint
    assert "hf download" not in hint


def test_a_hint_does_not_name_more_files_than_anybody_reads(tmp_path: Path) -> None:
    hint = fetch_again(tmp_path, [f"{n}.safetensors" for n in range(96)])
    command = f"hf download moonshotai/Kimi-K3 FILE --local-dir {tmp_path} --force-download"
    assert hint == f"if this is a download, `{command}` fetches one of these files again"


def test_a_checkpoint_is_never_written_to(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p: p.stat().st_mtime_ns for p in [small_model, *small_model.iterdir()]}
    for place in (small_model, small_model / "cache"):
        monkeypatch.setenv("LILLIPUT_CACHE", str(place))
        opened(small_model)
        opened(small_model)
    assert {p: p.stat().st_mtime_ns for p in [small_model, *small_model.iterdir()]} == before
