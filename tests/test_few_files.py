"""Too few descriptors, and a packed tape that cannot be looked into: said with what helps."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lilliput.cli.main import run
from lilliput.engine.packing import pack_model
from lilliput.weights.manifest import MANIFEST

LIMITED = """
import os, resource, sys
import numpy, msgspec, psutil, lilliput.cli.generate, lilliput.cli.pack, lilliput.cli.plan, lilliput.cli.tokenize
from lilliput.cli.main import run
spare = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1 + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors in /proc")
@pytest.mark.parametrize("verb", ["generate", "plan", "pack", "verify"])
@pytest.mark.parametrize("spare", [0, 1, 2, 5, 10, 11, 12, 13, 14])
def test_too_many_open_files_are_said_to_be(tiny_synth: Path, tmp_path: Path, verb: str, spare: int) -> None:
    """Wherever the limit is met: every verb ends well, or names the limit and what raises it."""
    here = tmp_path / "t"
    here.mkdir()
    for file in tiny_synth.iterdir():
        os.link(file, here / file.name)
    if verb == "verify":
        from lilliput.engine.packing import open_source

        pack_model(open_source(here), tmp_path / "packed")
    rest = {
        "generate": [str(here), "--ids", "1", "-n", "1", "--memory", "200MB"],
        "plan": [str(here), "--memory", "200MB"],
        "pack": [str(here), "-o", str(tmp_path / "out")],
        "verify": [str(tmp_path / "packed")],
    }[verb]
    command = [sys.executable, "-c", LIMITED, str(spare), verb, *rest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    if done.returncode != 0:
        assert done.returncode == 3, done.stderr
        assert "too many files are open: raise the limit of " in done.stderr
        assert "`ulimit -n 1024`" in done.stderr
    assert spare > 0 or done.returncode == 3


def test_a_packed_tape_that_cannot_be_looked_into_is_named(
    tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an ordinary user meets it in a directory of mode 000."""
    here = shutil.copytree(tiny_synth, tmp_path / "t")
    plain = Path.stat

    def forbidden(self: Path, **options: Any) -> os.stat_result:
        if self.name == MANIFEST:
            raise PermissionError(13, "Permission denied", str(self))
        return plain(self, **options)

    monkeypatch.setattr(Path, "stat", forbidden)
    assert run(["generate", str(here), "--ids", "1", "-n", "1"]) == 2
    assert f"{here}.lilliput: needed a directory that can be read, found Permission denied" in (error := capsys.readouterr().err)
    assert "--trunk" in error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_of_mode_000(tiny_synth: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = shutil.copytree(tiny_synth, tmp_path / "t")
    (tmp_path / "t.lilliput").mkdir(mode=0)
    assert run(["generate", str(here), "--ids", "1", "-n", "1"]) == 2
    assert "t.lilliput: needed a directory that can be read" in capsys.readouterr().err
    (tmp_path / "t.lilliput").chmod(stat.S_IRWXU)
