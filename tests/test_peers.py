"""bench/peers/compare.py without peers: what it refuses before anything runs, and what it says while they do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lilliput.engine.models import DEMO

COMPARE = Path(__file__).parent.parent / "bench" / "peers" / "compare.py"
RESULT = {"version": "v", "load_s": 1.0, "prefill": [2.0], "decode": [3.0], "ids": [[4, 5]], "peak_rss_bytes": 6}


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """With a peer's interpreter that cannot be run: whatever gets as far as that fails."""
    command = [sys.executable, str(COMPARE), "--peer-python", "/nowhere/python", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothere"], "nothere: needed a checkpoint directory (or the word `demo`), found nothing"),
        (["demo", "--memory", "8G"], "--memory: needed a number and a unit"),
        (["demo", "--tokens", "1"], "--tokens: needed 2 or more, found 1"),
        (["demo", "--rounds", "0"], "--rounds: needed 1 or more, found 0"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line_before_anything_runs(arguments: list[str], said: str) -> None:
    done = compare(*arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_what_the_engine_refuses_is_one_line_too() -> None:
    done = compare("demo", "--memory", "1MB", "--prompt", "2", "--tokens", "2")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "lilliput: memory 1MB is not enough" in done.stderr


def test_each_process_is_announced_and_demo_is_the_model_in_the_box(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(COMPARE.parent)
    import compare as module  # type: ignore[import-not-found]

    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(RESULT) + "\n")

    monkeypatch.setattr(module.subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--peer-python", "other", "demo", "--rounds", "2"])
    assert module.main() == 0
    out, err = capsys.readouterr()
    assert [line.split(",")[0] for line in err.splitlines()] == [
        f"process {n} of 6: {name}" for n, name in enumerate(["lilliput", "mlx-lm", "mlx-lm"] * 2, 1)
    ]
    assert {call[2] for call in calls} == {str(DEMO)}
    assert [Path(call[1]).name for call in calls] == ["peer_lilliput.py", "peer_mlx.py", "peer_mlx.py"] * 2
    assert "the first 2 of 2" in out
