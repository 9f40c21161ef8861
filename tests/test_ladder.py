"""The exactness ladder: singles and a pairwise cover in `make test`, the whole product in `make ladder`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ladder
import pytest
from control_register import MODES, under_mode
from models import all_logits, build_model

from lilliput import _core

ORACLES = Path(__file__).parent / "oracle"


def oracle_ids(directory: Path) -> list[int]:
    expected = json.loads((directory / "expected.json").read_text())
    return [*expected["prompt_ids"], *expected["greedy_ids"]]


def check(directory: Path, variants: list[ladder.Variant]) -> None:
    ids = oracle_ids(directory)
    want, *got = ladder.digests(directory, ids, [ladder.base(), *variants])
    different = [variant for variant, digest in zip(variants, got, strict=True) if digest != want]
    assert not different


@pytest.fixture(autouse=True)
def _machine_settings_restored() -> Iterator[None]:
    threads, isa = _core.threads(), _core.isa()
    yield
    _core.set_threads(threads)
    _core.use_isa(isa)


def test_every_axis_alone(oracle: Path) -> None:
    check(oracle, list(ladder.singles()))


def test_pairwise_cover(oracle: Path) -> None:
    check(oracle, ladder.pairwise())


@pytest.mark.ladder
def test_whole_product(oracle: Path) -> None:
    check(oracle, list(ladder.product()))


@pytest.mark.parametrize("mode", MODES)
def test_the_callers_floating_point_mode_does_not_show(mode: str, oracle: Path) -> None:
    _core.set_threads(1)
    model, ids, got = build_model(oracle), oracle_ids(oracle), list[bytes]()
    under_mode(mode, lambda: got.append(all_logits(model, ids).tobytes()))
    assert got == [all_logits(model, ids).tobytes()]


def test_the_cover_covers() -> None:
    covered = set().union(*(ladder._pairs(v) for v in ladder.pairwise()))
    assert covered == set().union(*(ladder._pairs(v) for v in ladder.product()))


def test_masked_numpy_really_has_fewer_features() -> None:
    names = ladder.MASKED["NPY_DISABLE_CPU_FEATURES"].split()
    if not names:
        pytest.skip("this processor has nothing to mask")
    code = f"from numpy._core._multiarray_umath import __cpu_features__ as f; print(sum(f[n] for n in {names}))"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | ladder.MASKED, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
