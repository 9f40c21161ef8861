"""A synthetic checkpoint appears whole or not at all, and is refused in one sentence where it cannot be."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.synth import SHAPES, sparse, staging, write_synthetic, writer

Usage = namedtuple("Usage", "total used free")


def test_a_directory_with_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"needed an empty or absent directory, found notes\.txt"):
        write_synthetic(tmp_path, "tiny")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    with pytest.raises(UsageError, match="needed a directory"):
        write_synthetic(tmp_path / "d", "tiny")
    assert (tmp_path / "d").read_text() == "mine"


def test_odd_names_and_missing_parents_are_fine(tmp_path: Path) -> None:
    target = tmp_path / "a b" / "größe 模型"
    write_synthetic(target, "tiny")
    names = {p.name for p in target.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors.index.json", "synth.json"} < names
    assert {"tiktoken.model", "tokenizer_config.json"} < names
    assert staging.PARTIAL not in names


@pytest.mark.parametrize(("shape", "seed", "message"), [("huge", 0, "--shape: needed one of tiny, mini, midi, k3, found 'huge'"),
                                                        ("tiny", -1, "--seed"), ("tiny", 2**64, "--seed")])  # fmt: skip
def test_bad_options(tmp_path: Path, shape: str, seed: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_synthetic(tmp_path / "d", shape, seed=seed)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("shape", "free"), [("midi", 19_999_999_999), ("k3", 599_999_999), ("mini", 2_000_000_000), ("tiny", 6_000_000)])
def test_too_little_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, free: int
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))
    with pytest.raises(DoesNotFitError, match=rf"`{shape}` needs .* GB of free disk, found {free / 1e9:.2f} GB"):
        write_synthetic(tmp_path / "new" / "d", shape)
    assert list(tmp_path.iterdir()) == []


def test_midi_asks_for_20_gb() -> None:
    assert SHAPES["midi"].free_bytes == 20_000_000_000


class Stop(BaseException):
    pass


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
def test_an_interrupt_removes_what_was_written(tmp_path: Path, existed: bool, error: type[BaseException]) -> None:
    target = tmp_path / "d"
    if existed:
        target.mkdir()

    def progress(done: int, total: int) -> None:
        if done > total // 2:
            raise error

    with pytest.raises(error):
        write_synthetic(target, "tiny", progress=progress)
    assert target.exists() == existed
    assert list(tmp_path.rglob("*")) == ([target] if existed else [])
    write_synthetic(target, "tiny")


def test_an_interrupt_between_the_renames_removes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "config.json":
            assert (target.parent / "synth.json").exists()  # the limit on ids is there before anything can be opened
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_synthetic(tmp_path / "d", "tiny")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys, pathlib
from lilliput.synth import write_synthetic
write_synthetic(pathlib.Path(sys.argv[1]), "tiny", progress=lambda done, total: os._exit(9) if done > total // 2 else None)
"""


def test_a_killed_writer_leaves_nothing_a_reader_would_trust_and_the_next_starts_anew(tmp_path: Path, tiny_synth: Path) -> None:
    target = tmp_path / "d"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)], env=env).returncode == 9
    assert [p.name for p in target.iterdir()] == [staging.PARTIAL]
    assert len(list((target / staging.PARTIAL).iterdir())) > 1
    write_synthetic(target, "tiny")
    assert {p.name: p.read_bytes() for p in target.iterdir()} == {p.name: p.read_bytes() for p in tiny_synth.iterdir()}


def test_a_running_writer_is_not_disturbed(tmp_path: Path) -> None:
    partial = tmp_path / "d" / staging.PARTIAL
    partial.mkdir(parents=True)
    (partial / "model-00001-of-000010.safetensors").write_bytes(b"half")
    lock = os.open(partial, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(UsageError, match="another `lilliput synth` is writing here"):
        write_synthetic(tmp_path / "d", "tiny")
    assert (partial / "model-00001-of-000010.safetensors").read_bytes() == b"half"
    os.close(lock)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [(errno.ENOSPC, DoesNotFitError, "the disk became full"), (errno.EDQUOT, DoesNotFitError, "the disk became full"),
     (errno.EFBIG, DoesNotFitError, "files this large"), (errno.EIO, LilliputError, "could not be written: ")],
)  # fmt: skip
def test_disk_errors_are_one_sentence_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[LilliputError], message: str
) -> None:
    def fail(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(writer, "sync", fail)
    with pytest.raises(kind, match=message):
        write_synthetic(tmp_path / "d", "tiny")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_synthetic(tmp_path / "file" / "d", "tiny")


@pytest.fixture
def small_k3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the full size, the sparse way of writing, the dimensions of tiny."""
    monkeypatch.setitem(SHAPES, "k3", replace(SHAPES["tiny"], name="k3", sparse=True))


@pytest.mark.usefixtures("small_k3")
def test_a_file_system_without_holes_is_refused_before_the_disk_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "truncate", lambda fd, size: os.posix_fallocate(fd, 0, size))
    with pytest.raises(DoesNotFitError, match="needs a file system with sparse files"):
        write_synthetic(tmp_path / "d", "k3")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_k3")
def test_holes_that_fill_later_stop_the_writer_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(fd: int, shard: object, seed: int) -> None:
        os.posix_fallocate(fd, 0, 300_000_000)

    monkeypatch.setattr(sparse, "write_shard", filled)
    seen: list[int] = []
    with pytest.raises(DoesNotFitError, match="at most 600 MB"):
        write_synthetic(tmp_path / "d", "k3", progress=lambda done, total: seen.append(done))
    assert len(seen) <= 2
    assert list(tmp_path.iterdir()) == []


def test_this_file_system_passes_the_probe(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    sparse.probe(folder)
    assert list(folder.iterdir()) == []
