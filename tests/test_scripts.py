"""The shell scripts of the repository: each stops at its first failure, and none fails by chance."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = subprocess.run(["git", "ls-files", "*.sh", ".ci/run"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
# These stop reading before the end. What still writes to them is killed then, now and again, and with pipefail the script fails.
LEAVES_EARLY = re.compile(r"\|\s*(head|cmp|grep\s[^|]*-\w*[qm]|sed\s[^|]*\d*q)\b")


@pytest.mark.parametrize("name", NAMES)
def test_no_script_can_fail_by_a_race_of_its_pipes(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "set -euo pipefail" in text or not text.startswith("#!")  # without #! it is read by one that has it
    assert not [line for line in text.splitlines() if LEAVES_EARLY.search(line)]


def test_the_scripts_were_found() -> None:
    assert {".ci/run", "tools/cmake.sh", "tools/line_counts.sh"} <= set(NAMES)
