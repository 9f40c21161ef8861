"""All 93 layers at the true shapes, on the sparse full-size checkpoint, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST_RSS = 1_200_000_000  # reading in place: state 0.46 GB, resident tensors 0.06, the interpreter, one piece, one expert


def test_generate_runs_every_layer_of_the_release(k3_sparse: Path, tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    arguments = ["generate", str(k3_sparse), "--ids", "1,2,3", "--max-tokens", "2", "--json", str(report_file)]
    done = subprocess.run([sys.executable, "-m", "lilliput", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(report_file.read_text())
    assert done.stdout == ",".join(map(str, report["ids"])) + "\n"
    assert len(report["ids"]) == 2
    assert all(0 <= i < 256 for i in report["ids"])
    assert report["layers"] == 93
    assert report["peak_rss_bytes"] <= MOST_RSS
    assert report["timings"]["token_s"]
    assert "peak RSS" in done.stderr
