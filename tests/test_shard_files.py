"""Shards that change while they are in use, and too few descriptors for them."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest
from models import build_model

import lilliput
from lilliput.errors import LilliputError
from lilliput.weights.files import ShardFiles

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"


def test_a_shard_replaced_by_another_of_its_size_is_not_mixed_in(tmp_path: Path) -> None:
    directory = shutil.copytree(TINY_A, tmp_path / "m")
    with lilliput.open(directory) as engine:
        for shard in directory.glob("*.safetensors"):
            (tmp_path / "new").write_bytes(bytes(shard.stat().st_size))
            (tmp_path / "new").replace(shard)
        found = [token.id for token in engine.generate([1, 2, 3], max_tokens=5)]
    with lilliput.open(TINY_A) as engine:
        assert found == [token.id for token in engine.generate([1, 2, 3], max_tokens=5)]


def test_a_file_cut_while_in_use_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345678")
    files = ShardFiles([tmp_path / "f"], [8])
    os.truncate(tmp_path / "f", 4)
    with pytest.raises(LilliputError, match="truncated while in use"):
        files.read(0, 0, 8)
    files.close()
    with pytest.raises(LilliputError, match="needed 8 bytes, found 4"):
        ShardFiles([tmp_path / "f"], [8])


def test_a_pipe_in_place_of_a_shard_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    with pytest.raises(LilliputError, match="replaced while in use"):
        ShardFiles([tmp_path / "f"], [8])


def test_too_few_descriptors_end_the_start_and_leave_none_open(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345678")
    descriptors = Path("/proc/self/fd")
    open_now = len(list(descriptors.iterdir())) if descriptors.exists() else 64
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, before[1]))
    try:
        for _ in range(3):
            with pytest.raises(LilliputError, match="ulimit -n"):
                ShardFiles([tmp_path / "f"] * 4096, [8] * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_weights_that_cannot_be_opened_leave_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise LilliputError("read error")

    monkeypatch.setattr(ShardFiles, "read", broken)
    closed = []
    monkeypatch.setattr(ShardFiles, "close", lambda files: closed.append(files))
    with pytest.raises(LilliputError, match="read error"):
        build_model(Path(__file__).parent / "oracle" / "tiny-a")
    assert len(closed) == 1
