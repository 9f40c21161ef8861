"""Synthetic checkpoints shared by all tests of a session: each is written once, by a process of its own.

`conftest.py` imports the fixtures, so that every test module sees the same ones. Under pytest-xdist the workers share one copy, and
the last one to finish removes it: a session must not leave gigabytes behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"


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
    with shared_checkpoint("k3", request, tmp_path_factory) as directory:
        yield directory


@contextmanager
def shared_checkpoint(shape: str, request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = factory.getbasetemp()
    worker = getattr(request.config, "workerinput", {}).get("workerid", "only")
    if worker != "only":
        base = base.parent
    users = base / f"synth-{shape}-users"
    directory = base / f"synth-{shape}"
    with _locked(base / f"synth-{shape}.lock"):
        users.mkdir(exist_ok=True)
        if not (directory / "config.json").exists():
            write_apart(directory, shape)
        (users / worker).touch()
    yield directory
    with _locked(base / f"synth-{shape}.lock"):
        (users / worker).unlink()
        if not any(users.iterdir()):
            shutil.rmtree(directory)


def write_apart(directory: Path, shape: str) -> None:
    """In a process of its own: what it holds in memory must not count in this process's peak."""
    code = "import sys, pathlib; from lilliput.synth import write_synthetic; write_synthetic(pathlib.Path(sys.argv[1]), sys.argv[2])"
    path = os.pathsep.join(p for p in (str(SOURCE), os.environ.get("PYTHONPATH", "")) if p)
    subprocess.run([sys.executable, "-c", code, str(directory), shape], check=True, env={**os.environ, "PYTHONPATH": path})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
