"""A real memory ceiling for a child process: cgroup v1 or v2, swap off."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import missing

ROOT = Path("/sys/fs/cgroup")


@contextmanager
def ceiling(nbytes: int) -> Iterator[Path]:
    """A fresh control group that may use `nbytes` of memory and no swap. Skips (or fails, in CI) where none can be made."""
    v1 = ROOT / "memory"
    base = v1 if (v1 / "memory.limit_in_bytes").exists() else ROOT
    group = base / f"lilliput-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
    except OSError as error:
        missing(f"no control group can be made here ({error.strerror})")
    try:
        if base == v1:
            (group / "memory.limit_in_bytes").write_text(str(nbytes))
            (group / "memory.swappiness").write_text("0")
        elif (group / "memory.max").exists():
            (group / "memory.max").write_text(str(nbytes))
            (group / "memory.swap.max").write_text("0")
        else:
            missing("control groups without the memory controller")
        yield group
    finally:
        group.rmdir()


def run_under(group: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `python -m lilliput ...` inside the group."""
    return subprocess.run(
        [sys.executable, "-m", "lilliput", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),  # type: ignore[arg-type,return-value]
    )


def usage_peak(group: Path) -> int:
    """The most memory the group used, page cache included, in bytes."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text())
    return 0
