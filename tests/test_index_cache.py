"""The sidecar that remembers what the headers said, and everything that makes it worthless."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_checkpoint import (
    NAMES,
    SMALL,
    layout_of,
    nested,
    opened,
    same,
    small_text,
    write_checkpoint,
)

from lilliput.errors import CheckpointError
from lilliput.machine.places import cache_directory
from lilliput.weights import checkpoint as checkpoint_module
from lilliput.weights import shard_index
from lilliput.weights.index_cache import Sidecar


def sidecar_of(model: Path, config: dict[str, Any] = SMALL) -> Path:
    path = Sidecar(model, layout_of(config)).path
    assert path is not None
    return path


def test_sidecar_says_the_same(small_model: Path, cache: Path) -> None:
    first = opened(small_model)
    assert not first.from_sidecar
    second = opened(small_model)
    assert second.from_sidecar
    assert same(first, second)
    assert (first.files, first.path) == (second.files, second.path)
    assert second.experts is not None
    assert second.experts.offset.flags.aligned
    assert not second.experts.offset.flags.writeable
    assert [p.parent for p in [sidecar_of(small_model)]] == [cache]
    assert not opened(small_model, cache=False).from_sidecar


def test_sidecar_spares_the_headers(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(small_model)

    def never(*_: object) -> None:
        raise AssertionError("a header or the index was read")

    monkeypatch.setattr(checkpoint_module, "read_header", never)
    monkeypatch.setattr(shard_index, "_scan", never)
    assert opened(small_model).from_sidecar


def touch(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def grow_index(model: Path) -> None:
    path = model / "model.safetensors.index.json"
    path.write_text(path.read_text() + "\n")


def replace_with_same_times(model: Path) -> None:
    """Same size, same mtime, other content: only ctime and inode tell."""
    path = model / NAMES[0]
    status = path.stat()
    shutil.copy(path, model / "new")
    (model / "new").replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


STALE: dict[str, Callable[[Path], object]] = {
    "mtime of a shard": lambda m: touch(m / NAMES[1]),
    "mtime of the index": lambda m: touch(m / "model.safetensors.index.json"),
    "size of the index": grow_index,
    "a shard replaced with its times": replace_with_same_times,
    "flipped byte": lambda m: flip(sidecar_of(m), 60),
    "flipped last byte": lambda m: flip(sidecar_of(m), -1),
    "other magic": lambda m: flip(sidecar_of(m), 15),
    "cut": lambda m: os.truncate(sidecar_of(m), 400),
    "empty": lambda m: os.truncate(sidecar_of(m), 0),
    "garbage": lambda m: sidecar_of(m).write_bytes(os.urandom(3000)),
    "a pipe": lambda m: pipe(sidecar_of(m)),
    "removed": lambda m: sidecar_of(m).unlink(),
    "index removed": lambda m: (m / "model.safetensors.index.json").unlink(),
}


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("change", STALE.values(), ids=STALE)
def test_stale_or_corrupt_sidecars_are_ignored_and_rewritten(small_model: Path, change: Callable[[Path], object]) -> None:
    first = opened(small_model)
    change(small_model)
    again = opened(small_model)
    assert not again.from_sidecar
    assert same(first, again)
    assert opened(small_model).from_sidecar


def test_a_giant_sidecar_is_not_read(small_model: Path) -> None:
    first = opened(small_model)
    os.truncate(sidecar_of(small_model), 300_000_000)
    tracemalloc.start()
    try:
        again = opened(small_model)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert not again.from_sidecar
    assert same(first, again)
    assert opened(small_model).from_sidecar


def test_sidecar_of_another_layout(small_model: Path) -> None:
    opened(small_model)
    with pytest.raises(CheckpointError):
        opened(small_model, nested(small_text(num_experts=2)))
    assert opened(small_model).from_sidecar


def test_sidecar_of_a_directory_moved_over(small_model: Path, tmp_path: Path) -> None:
    """Another checkpoint under the same path, with other shards, is read anew; a lost shard is missed in spite of the sidecar."""
    opened(small_model)
    other = write_checkpoint(tmp_path / "other", SMALL, shards=3)
    shutil.rmtree(small_model)
    other.rename(small_model)
    found = opened(small_model)
    assert not found.from_sidecar
    assert len(found.files) == 3
    found.files[2].unlink()
    with pytest.raises(CheckpointError, match="model-00003-of-000003"):
        opened(small_model)


def test_new_shards_without_index_are_seen(small_model: Path) -> None:
    (small_model / "model.safetensors.index.json").unlink()
    opened(small_model)
    shutil.copy(small_model / NAMES[0], small_model / "model-00001-of-000003.safetensors")
    with pytest.raises(CheckpointError, match="not one numbered set"):
        opened(small_model)


def test_cache_that_cannot_be_written(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing"), Path("~no-such-user-at-all/x")):
        monkeypatch.setenv("LILLIPUT_CACHE", str(place))
        for _ in range(2):
            assert not opened(small_model).from_sidecar
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    monkeypatch.setenv("LILLIPUT_CACHE", str(loop))
    assert not opened(small_model).from_sidecar


def test_nothing_half_written_is_left(small_model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        assert not opened(small_model).from_sidecar
    assert list(cache.iterdir()) == []
    opened(small_model)
    assert [p.name for p in cache.iterdir()] == [sidecar_of(small_model).name]
    assert stat.S_IMODE(sidecar_of(small_model).stat().st_mode) == 0o600


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LILLIPUT_CACHE", "~/c")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "c"
    monkeypatch.delenv("LILLIPUT_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_directory() == tmp_path / ".cache" / "lilliput"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "lilliput"


def test_identity(small_model: Path, tmp_path: Path) -> None:
    first = opened(small_model).identity
    shutil.copytree(small_model, tmp_path / "copy")
    assert opened(tmp_path / "copy").identity == first
    other = write_checkpoint(tmp_path / "other", SMALL, shards=3)
    assert opened(other).identity != first
