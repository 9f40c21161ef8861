"""Plausible mistakes, patched one at a time into the reference and into the engine, must each show in the logits.

First in the reference: a checkpoint that lets a mistake pass proves nothing. Then in a copy of the engine's sources, run in a
process of its own: the tolerance that the other tests use must be clearly exceeded, and a mere crash does not count.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from agreement import REFERENCE_FILE, float32_tolerance, load_reference, reference
from mistakes import CHECKPOINTS, MISTAKES, Edit, Mistake
from random_checkpoint import random_config, text_config, write_checkpoint

TESTS = Path(__file__).resolve().parent
SOURCES = TESTS.parent / "src" / "lilliput"
CLEAR = 3  # a mistake must exceed the tolerance by this factor
TOKENS = 36
NAMED = {m.name: m for m in MISTAKES}


@dataclass(frozen=True)
class Target:
    """A checkpoint, a prompt, and the logits at all of its positions."""

    directory: Path
    ids: list[int]
    logits: np.ndarray
    tolerance: float

    def error(self, logits: np.ndarray) -> float:
        """Largest difference as a multiple of the tolerance; infinite for a NaN."""
        assert logits.shape == self.logits.shape
        error = np.abs(logits - self.logits).max() / self.tolerance
        return float(error) if np.isfinite(error) else float("inf")


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    found = {}
    for name in ("tiny-a", "tiny-b"):
        directory = TESTS / "oracle" / name
        expected = json.loads((directory / "expected.json").read_bytes())
        ids, tolerance = expected["prompt_ids"] + expected["greedy_ids"], expected["logits_max_abs_tolerance"]
        found[name] = Target(directory, ids, np.load(directory / "logits.npy"), tolerance)
    for seed, (name, overrides) in enumerate(CHECKPOINTS.items()):
        raw = random_config(random.Random(seed), **overrides)
        directory = write_checkpoint(tmp_path_factory.mktemp(name), raw, seed)
        model = reference.Reference(directory)
        ids = np.random.default_rng(seed).integers(0, text_config(raw)["vocab_size"], TOKENS).tolist()
        found[name] = Target(directory, ids, model.forward(ids).logits, float32_tolerance(model, ids).logits)
    return found


def replaced(text: str, old: str, new: str, where: str) -> str:
    assert text.count(old) == 1, f"{where}: needed exactly one occurrence of {old!r}, found {text.count(old)}; mend the table of mistakes"
    return text.replace(old, new)


# --- the reference --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [m.name for m in MISTAKES if m.reference])
def test_mistake_shows_in_the_reference(targets: dict[str, Target], name: str) -> None:
    mistake = NAMED[name]
    assert mistake.reference is not None
    source = replaced(REFERENCE_FILE.read_text(encoding="utf-8"), *mistake.reference, "tools/reference.py")
    target = targets[mistake.shows_on]
    logits = load_reference("reference_with_a_mistake", source).Reference(target.directory).forward(target.ids).logits
    assert target.error(logits) > CLEAR


# --- the engine -----------------------------------------------------------------------------------------------------------------


def patched_copy(directory: Path, edits: Iterable[Edit]) -> Path:
    """The package's sources with the edits, and the compiled core beside them; returns the directory for the path."""
    shutil.copytree(SOURCES, directory / "lilliput", ignore=shutil.ignore_patterns("__pycache__", "_core*"))
    (directory / "lilliput" / "__init__.py").write_text("")  # the run needs the model, not all that stands above it
    core = importlib.util.find_spec("lilliput._core")
    assert core is not None, "the compiled core is not installed: run `pip install -e .`"
    assert core.origin is not None
    (directory / "lilliput" / Path(core.origin).name).symlink_to(core.origin)
    for edit in edits:
        file = directory / "lilliput" / edit.file
        text = replaced(file.read_text(encoding="utf-8"), edit.old, edit.new, edit.file)
        if "plain_kernels." in edit.new and "import plain_kernels" not in text:
            text = replaced(text, "\nfrom lilliput import _core\n", "\nimport plain_kernels\nfrom lilliput import _core\n", edit.file)
        file.write_text(text, encoding="utf-8")
    return directory


def run(path: Path, target: Target, out: Path) -> subprocess.CompletedProcess[str]:
    """The package copy under `path` in a process of its own."""
    arguments = [str(path), str(target.directory), ",".join(map(str, target.ids)), str(out)]
    argv = [sys.executable, "-B", "-W", "error", str(TESTS / "run_logits.py"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


def engine_logits(path: Path, target: Target) -> np.ndarray:
    out = path / "logits.npy"
    done = run(path, target, out)
    assert done.returncode == 0, f"the run must end well, mistake or not, but:\n{done.stderr}"
    return np.load(out)


def as_it_should_be(mistakes: Iterable[Mistake]) -> list[Edit]:
    """Every replacement of a kernel in the table, all at once, without the mistakes."""
    edits = {}
    for mistake in mistakes:
        for edit in mistake.engine:
            if "plain_kernels." in edit.new:
                new = re.sub(r'(plain_kernels\.wrong\("\w+", )"[^"]*"', r'\1""', edit.new)
                edits[edit.file, edit.old] = Edit(edit.file, edit.old, new)
    return list(edits.values())


@pytest.mark.parametrize("target", ["tiny-a", "tiny-b", *CHECKPOINTS])
def test_unpatched_copy_agrees(targets: dict[str, Target], target: str, tmp_path: Path) -> None:
    assert targets[target].error(engine_logits(patched_copy(tmp_path, ()), targets[target])) <= 1


@pytest.mark.parametrize("target", ["tiny-a", *CHECKPOINTS])
def test_plain_kernels_without_a_mistake_agree(targets: dict[str, Target], target: str, tmp_path: Path) -> None:
    edits = as_it_should_be(MISTAKES)
    assert len(edits) >= 10
    assert targets[target].error(engine_logits(patched_copy(tmp_path, edits), targets[target])) <= 1


@pytest.mark.parametrize("name", NAMED)
def test_mistake_shows_in_the_engine(targets: dict[str, Target], name: str, tmp_path: Path) -> None:
    mistake = NAMED[name]
    target = targets[mistake.shows_on]
    assert target.error(engine_logits(patched_copy(tmp_path, mistake.engine), target)) > CLEAR


def test_zero_based_layer_list_is_refused(targets: dict[str, Target], tmp_path: Path) -> None:
    """This mistake cannot get as far as a logit: the tensors of the wrong kind of layer are not there."""
    edit = Edit("model/config.py", "n in is_kda for n in range(1, layers + 1)", "n in is_kda for n in range(layers)")
    done = run(patched_copy(tmp_path, [edit]), targets["tiny-a"], tmp_path / "logits.npy")
    assert done.returncode != 0
    assert "CheckpointError" in done.stderr
    assert "self_attn." in done.stderr


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert len(MISTAKES) == len(NAMED) >= 40
