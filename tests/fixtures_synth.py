"""Synthetic checkpoints shared by all tests of a session: each is written once, by a process of its own. Tests must not change them.

`conftest.py` imports the fixtures, so that every test module sees the same ones. Under pytest-xdist the workers share one copy, and
the last one to finish removes it: a session must not leave gigabytes behind. The sparse full size alone is kept in pytest's cache
folder until the code that writes it changes: it takes 0.54 GB, and removing its 82,000 fragments costs minutes on a disk mounted
with `discard`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lilliput.model.layout
import lilliput.synth
import lilliput.weights.layout


@pytest.fixture(scope="session")
def tiny_synth(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A few MB, 9 layers; seed 0."""
    with shared_checkpoint("tiny", request, tmp_path_factory) as directory:
        yield directory


@pytest.fixture(scope="session")
def mini(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """2.1 GB, 18 layers, every byte present; seed 0."""
    with shared_checkpoint("mini", request, tmp_path_factory) as directory:
        yield directory


@pytest.fixture(scope="session")
def k3_sparse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The full size, 93 layers and 96 shards of 1.56 TB in 0.54 GB of disk; seed 0."""
    if (cache := getattr(request.config, "cache", None)) is None:  # pytest -p no:cacheprovider
        with shared_checkpoint("k3", request, tmp_path_factory) as directory:
            yield directory
        return
    folder = cache.mkdir("lilliput-synth")
    directory = folder / f"k3-{fingerprint()}"
    with locked(folder / "lock"):
        for old in folder.glob("k3-*"):
            if old != directory:
                shutil.rmtree(old)
        if not (directory / "config.json").exists():
            write_apart(directory, "k3")
    yield directory


def fingerprint() -> str:
    """Of everything that decides the bytes of the full size."""
    files = [
        *Path(lilliput.synth.__file__).parent.glob("*.py"),
        Path(lilliput.model.layout.__file__),
        Path(lilliput.weights.layout.__file__),
    ]
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(files))).hexdigest()[:16]


@contextmanager
def shared_checkpoint(shape: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = factory.getbasetemp()
    worker = getattr(request.config, "workerinput", {}).get("workerid", "only")
    if worker != "only":
        base = base.parent
    users = base / f"synth-{shape}-users"
    directory = base / f"synth-{shape}"
    with locked(base / f"synth-{shape}.lock"):
        users.mkdir(exist_ok=True)
        if not (directory / "config.json").exists():
            write_apart(directory, shape)
        (users / worker).touch()
    yield directory
    with locked(base / f"synth-{shape}.lock"):
        (users / worker).unlink()
        if not any(users.iterdir()):
            shutil.rmtree(directory)


def write_apart(directory: Path, shape: str) -> None:
    """In a process of its own: what it holds in memory must not count in this process's peak."""
    code = "import sys, pathlib; from lilliput.synth import write_synthetic; write_synthetic(pathlib.Path(sys.argv[1]), sys.argv[2])"
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", code, str(directory), shape], check=True, env={**os.environ, "PYTHONPATH": path})


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
