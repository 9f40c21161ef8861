"""Imports point downwards: the command line and the benchmarks on top, then the engine, the model and the weights."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import lilliput

PACKAGE = Path(lilliput.__file__).parent
UPPERMOST_FIRST = ("__main__", "cli", "bench", "__init__", "engine", "model", "weights")
BESIDE = UPPERMOST_FIRST.index("model")  # machine, text and all others: what may use the model, and is used by the engine


def imported(file: Path) -> Iterator[str]:
    """Parts of the package that a file imports, wherever in it that stands."""
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: needed the whole name of a module, found a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("lilliput."))


@pytest.mark.parametrize("rank", range(len(UPPERMOST_FIRST)), ids=UPPERMOST_FIRST)
def test_nothing_below_imports_it(rank: int) -> None:
    upper = UPPERMOST_FIRST[rank]
    found = []
    for file in PACKAGE.rglob("*.py"):
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        own = UPPERMOST_FIRST.index(part) if part in UPPERMOST_FIRST else BESIDE
        found += [str(file.relative_to(PACKAGE)) for name in imported(file) if name == upper and own > rank]
    assert not found


def test_opening_an_engine_loads_no_benchmark_and_no_command_line() -> None:
    program = textwrap.dedent("""
        import sys, lilliput
        with lilliput.open("demo", memory="2GB"):
            print(*(name for name in sys.modules if name.startswith(("lilliput.bench", "lilliput._bench", "lilliput.cli"))))
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
