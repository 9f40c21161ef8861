"""All 93 layers at the true shapes, on the sparse full-size checkpoint, through the command line and under a real memory ceiling.

Eleven full-size passes in all: three at the floor, in place and packed, two at 8 GB, and one each at 3, 5 and 16 GB.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hard_limit import ceiling, run_under, turn

GB = 10**9
IDS = "1,2,3,4,5"
TAPE_BYTES = 111_121_956_864  # bf16 bytes of the tape's matrices, from the shapes of the specification


class Outcome:
    def __init__(self, report: dict[str, Any], logits: np.ndarray) -> None:
        self.report, self.logits = report, logits
        self.rss, self.plan = report["peak_rss_bytes"], report["plan"]


def generate(model: Path, folder: Path, budget: str, limit: int, n: int, *options: str) -> Outcome:
    """`generate` under a hard limit of `limit` bytes."""
    arguments = ["generate", str(model), "--ids", IDS, "--max-tokens", str(n), "--memory", budget]
    arguments += ["--json", str(folder / "report.json"), "--logits", str(folder / "logits.npy"), *options]
    with turn(folder), ceiling(limit) as group:
        done = run_under(group, arguments)
    assert done.returncode == 0, done.stderr
    return Outcome(json.loads((folder / "report.json").read_text()), np.load(folder / "logits.npy"))


@pytest.fixture(scope="module")
def packed(k3_sparse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("packed") / "k3.lilliput"
    done = subprocess.run(
        [sys.executable, "-m", "lilliput", "pack", str(k3_sparse), "-o", str(directory), "-q"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def floor(k3_sparse: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return generate(k3_sparse, tmp_path_factory.mktemp("floor"), "2GB", 2 * GB, 3)


def test_the_floor_in_place(floor: Outcome) -> None:
    assert len(floor.report["ids"]) == 3
    assert floor.report["layers"] == 93
    assert floor.rss <= 2.0 * GB
    assert abs(floor.plan["total"] - floor.rss) <= 0.03 * floor.rss


def test_the_bytes_of_the_floor_are_the_planned_ones(floor: Outcome) -> None:
    tape = floor.report["run"]["trunk"]
    assert tape["bytes_last_pass"] == floor.plan["trunk_bytes_per_pass"]
    # margins of alignment are all that is read beyond the tape, and only pins are missing
    assert 0 <= floor.plan["trunk_bytes_per_pass"] + floor.plan["pin_bytes"] - TAPE_BYTES <= 0.003 * TAPE_BYTES


def test_the_floor_packed(k3_sparse: Path, packed: Path, floor: Outcome, tmp_path: Path) -> None:
    found = generate(k3_sparse, tmp_path, "2GB", 2 * GB, 3, "--trunk", str(packed))
    assert found.rss <= 2.0 * GB
    assert found.logits.tobytes() == floor.logits.tobytes()
    assert found.plan["trunk_bytes_per_pass"] + found.plan["pin_bytes"] <= 0.751 * TAPE_BYTES


def test_what_is_given_is_used_and_never_exceeded(k3_sparse: Path, floor: Outcome, tmp_path: Path) -> None:
    found = generate(k3_sparse, tmp_path, "8GB", 8 * GB, 2)
    assert 7.2 * GB <= found.rss <= 8.0 * GB
    assert abs(found.plan["total"] - found.rss) <= 0.03 * found.rss
    assert found.logits.tobytes() == floor.logits[:2].tobytes()


@pytest.mark.parametrize("gigabytes", [3, 5, 16])
def test_other_budgets_give_the_same_bits(k3_sparse: Path, floor: Outcome, tmp_path: Path, gigabytes: int) -> None:
    found = generate(k3_sparse, tmp_path, f"{gigabytes}GB", gigabytes * GB, 1)
    assert found.rss <= gigabytes * GB
    assert found.logits.tobytes() == floor.logits[:1].tobytes()


def test_less_than_the_floor_is_refused_with_the_numbers(k3_sparse: Path) -> None:
    arguments = ["generate", str(k3_sparse), "--ids", IDS, "--memory", "700MB"]
    done = subprocess.run([sys.executable, "-m", "lilliput", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "short by" in done.stderr
    assert "--memory" in done.stderr
