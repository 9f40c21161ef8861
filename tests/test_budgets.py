"""The same bits at every budget, in place and packed, within the budget; and what is bad on disk never reaches the output."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hard_limit import ceiling, run_under, turn

IDS = "1,2,3,4,5,6,7"
BUDGETS = ["260MB", "400MB", "700MB", "1.5GB", None]  # from near the floor to everything pinned


def generate(model: Path, folder: Path, budget: str | None, *options: str) -> subprocess.CompletedProcess[str]:
    arguments = ["generate", str(model), "--ids", IDS, "-n", "3", "--logits", str(folder / "l.npy"), "--json", str(folder / "r.json")]
    arguments += ["--memory", budget] if budget else []
    with turn(folder):
        return subprocess.run([sys.executable, "-m", "lilliput", *arguments, *options], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def packed(mini: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("budgets") / "packed"
    subprocess.run([sys.executable, "-m", "lilliput", "pack", str(mini), "-o", str(directory), "-q"], check=True)
    return directory


def test_budgets_change_bytes_and_never_bits(mini: Path, packed: Path, tmp_path: Path) -> None:
    logits, read = set(), []
    for budget in BUDGETS:
        for options in ((), ("--trunk", str(packed))):
            done = generate(mini, tmp_path, budget, *options)
            assert done.returncode == 0, done.stderr
            logits.add(np.load(tmp_path / "l.npy").tobytes())
            report = json.loads((tmp_path / "r.json").read_text())
            assert report["peak_rss_bytes"] <= report["plan"]["budget"]
            assert report["run"]["trunk"]["storage"] == ("packed" if options else "in place")
            assert report["run"]["trunk"]["bytes_last_pass"] == report["plan"]["trunk_bytes_per_pass"]
            read.append(report["run"]["trunk"]["bytes_last_pass"])
    assert len(logits) == 1
    in_place, from_packed = read[::2], read[1::2]
    assert in_place == sorted(in_place, reverse=True)
    assert in_place[0] > 0
    assert in_place[-1] == from_packed[-1] == 0  # everything is pinned
    assert from_packed[0] < in_place[0]


@pytest.mark.parametrize("budget", ["260MB", None])
def test_a_flipped_byte_in_a_packed_piece_ends_the_run_with_code_4(mini: Path, packed: Path, budget: str | None, tmp_path: Path) -> None:
    copy = shutil.copytree(packed, tmp_path / "bad")
    tape = max(copy.iterdir(), key=lambda path: path.stat().st_size)
    with tape.open("r+b") as file:
        file.seek(tape.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    done = generate(mini, tmp_path, budget, "--trunk", str(copy))
    assert done.returncode == 4
    assert str(tape) in done.stderr
    assert "piece" in done.stderr
    assert "model.layers." in done.stderr or "lm_head" in done.stderr
    assert not (tmp_path / "l.npy").exists()
    assert not (tmp_path / "r.json").exists()


def test_a_ceiling_below_the_budget_is_seen_before_the_start(mini: Path) -> None:
    with ceiling(400_000_000) as group:
        done = run_under(group, ["generate", str(mini), "--ids", IDS, "-n", "1", "--memory", "2GB"])
        assert done.returncode == 3
        assert "short by" in done.stderr
        assert "memory.limit_in_bytes" in done.stderr or "memory.max" in done.stderr
        done = run_under(group, ["generate", str(mini), "--ids", IDS, "-n", "1"])
        assert done.returncode == 0, done.stderr


def test_a_checkpoint_is_never_written_to(mini: Path, tmp_path: Path) -> None:
    """Nor needs it to be writable: what is there before and after a run is the same to the nanosecond."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [mini, *mini.iterdir()]}
    assert generate(mini, tmp_path, "400MB").returncode == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in [mini, *mini.iterdir()]} == before


def test_too_little_is_refused_with_what_would_fit(mini: Path, tmp_path: Path) -> None:
    done = generate(mini, tmp_path, "60MB")
    assert done.returncode == 3
    needed = done.stderr.split("--memory ")[-1].split()[0].rstrip(",;")
    assert generate(mini, tmp_path, needed).returncode == 0
