"""`bench open`: what it reports of its runs. tests/test_checkpoint.py opens real checkpoints with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lilliput.bench import open as bench
from lilliput.cli.main import run


def test_seconds_are_the_median_with_the_lowest_and_highest(
    monkeypatch: pytest.MonkeyPatch, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([3.0, 1.0, 1.5, 9.0, 0.5, 0.25, 0.125])  # the fourth writes the sidecar

    def opened(*_: Any) -> dict[str, Any]:
        about = {"files": 1, "bytes": 2, "tensors": 3, "from_sidecar": True}
        return {"seconds": next(seconds), "peak_rss_growth": 4_000_000, **about}

    monkeypatch.setattr(bench, "_run", opened)
    assert run(["bench", "open", str(small_model), "--json", str(tmp_path / "o.json")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1] == "every header: 1.5000 s, median of 3 (1.0000 to 3.0000); peak memory grew by at most 4.0 MB"
    assert out[2].startswith("index sidecar: 0.2500 s, median of 3 (0.1250 to 0.5000)")
    report = json.loads((tmp_path / "o.json").read_bytes())
    assert report["headers"]["seconds"] == {"median": 1.5, "lowest": 1.0, "highest": 3.0}
