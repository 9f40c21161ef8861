"""Memory ceilings: they hold, they leave nothing behind, and where none can be made that is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hard_limit import ceiling

from lilliput.machine import ceiling as machine
from lilliput.machine.ceiling import NoCeilingError

MB = 1_000_000
TAKE = "import sys; kept = bytearray(b'x') * int(sys.argv[1]); print(len(kept))"


def take(above: machine.Ceiling, nbytes: int) -> subprocess.CompletedProcess[str]:
    command = above.command([sys.executable, "-c", TAKE, str(nbytes)])
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_process_may_use_what_the_ceiling_leaves_and_no_more() -> None:
    with ceiling(100 * MB) as above:
        assert take(above, 40 * MB).stdout == f"{40 * MB}\n"
        assert take(above, 400 * MB).returncode in (-9, 137)
        assert above.group is None or above.group.is_dir()
        peak = above.peak()
        assert peak is None or 40 * MB < peak <= 100 * MB
    assert above.group is None or not above.group.exists()


@pytest.fixture
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda _: None)


@pytest.mark.usefixtures("no_systemd")
def test_where_no_group_can_be_made_that_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(NoCeilingError, match=r"no control group can be made in .*nowhere.*and there is no systemd-run"),
        machine.ceiling(MB, tmp_path / "nowhere"),
    ):
        pass


@pytest.mark.usefixtures("no_systemd")
def test_groups_without_the_controller_are_no_ceiling(tmp_path: Path) -> None:
    with pytest.raises(NoCeilingError, match="the memory controller is not enabled"), machine.ceiling(MB, tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def scripted(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """A systemd-run of ours: it prints `said` and runs nothing."""
    (folder / "systemd-run").write_text(f"#!/bin/sh\necho '{said}'\n")
    (folder / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_a_scope_counts_only_if_the_limit_is_really_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(tmp_path, monkeypatch, "max")
    with pytest.raises(NoCeilingError, match="does not have it"), machine.ceiling(64 * MB, tmp_path / "nowhere"):
        pass
    scripted(tmp_path, monkeypatch, str(64 * MB // 4096 * 4096))
    with machine.ceiling(64 * MB, tmp_path / "nowhere") as above:
        assert above.kind == "systemd scope"
        assert above.command(["true"])[-2:] == ["--", "true"]
        assert f"MemoryMax={64 * MB}" in above.prefix
        assert "MemorySwapMax=0" in above.prefix
        assert above.peak() is None
