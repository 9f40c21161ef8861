"""The extension loads on any x86-64: what runs before an instruction set is chosen, or whichever is, holds no instruction of a wider one.

Two traps: code of the baseline compiled with wider flags, and an inline function with external linkage in a kernel source, of
which the linker may keep the AVX-512 copy for everyone. `tools/test_baseline.sh` also runs the core on an emulated old processor.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, missing

WIDE = re.compile(r"%[yz]mm|%k[0-7]\b|\tv[a-z]|\{%k")


def objects(target: str) -> list[Path]:
    """Object files of a CMake target, from the newest build in the repository's build folder."""
    if platform.machine() != "x86_64":
        pytest.skip("about x86-64")
    for tool in ("objdump", "nm"):
        if shutil.which(tool) is None:
            missing(f"{tool} (binutils) is not here")
    folders = [d for d in ROOT.glob(f"build/*/CMakeFiles/{target}.dir") if "sanitize" not in str(d) and "aarch64" not in str(d)]
    builds = [d for d in folders if any(d.rglob("*.o"))]  # a build that was broken off has none
    if not builds:
        missing("the core was not built in build/ (`pip install -e .` does)")
    newest = max(builds, key=lambda d: max(f.stat().st_mtime for f in d.rglob("*.o")))
    return sorted(newest.rglob("*.o"))


def disassemble(file: Path) -> str:
    return subprocess.run(["objdump", "-d", "--no-show-raw-insn", str(file)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "target", ["lilliput_core", "lilliput_core_scalar", "_core", "lilliput_yardsticks", "lilliput_yardsticks_scalar", "_bench"]
)
def test_baseline_code_is_baseline(target: str) -> None:
    files = objects(target)
    assert files
    for file in files:
        found = [line for line in disassemble(file).splitlines() if WIDE.search(line)]
        assert not found, f"{file.name}: {found[:3]}"


@pytest.mark.parametrize("target", ["lilliput_core_avx2", "lilliput_core_avx512", "lilliput_yardsticks_avx2", "lilliput_yardsticks_avx512"])
def test_kernels_share_no_function_and_run_nothing_at_load(target: str) -> None:
    (file,) = objects(target)
    assert WIDE.search(disassemble(file)), "this test looks at the wrong file"
    symbols = subprocess.run(["nm", "-C", str(file)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert not [s for s in symbols if re.search(r" [TWVu] ", s)], "functions with external linkage"
    assert not [s for s in symbols if "_GLOBAL__sub_I" in s], "an initialiser runs at load"
    sections = subprocess.run(["objdump", "-h", str(file)], capture_output=True, text=True, check=True).stdout
    assert ".init_array" not in sections


@pytest.mark.parametrize("target", ["lilliput_core", "lilliput_yardsticks"])
def test_nothing_is_made_at_its_first_use(target: str) -> None:
    """A static of a function has a lock: the child of a fork that came while another thread made it would wait for ever."""
    for file in objects(target):
        symbols = subprocess.run(["nm", "-u", str(file)], capture_output=True, text=True, check=True).stdout
        assert "__cxa_guard" not in symbols, file.name
