"""exp, log, sigmoid, tanh, softplus: within 2 ulp of float64 for every kind of float, special values exact, one set of bits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from contract import fma, fma_exact, own

from lilliput import _core

F = np.float32
INF, NAN = F(np.inf), F(np.nan)
SMALLEST = F(2.0**-149)
LARGEST = np.finfo(F).max
LOG_OF_LARGEST = F(88.72283)


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    """tools/exhaustive_functions.py: its judge on a sample here, on all floats in `make ladder`."""
    path = Path(__file__).resolve().parent.parent / "tools" / "exhaustive_functions.py"
    spec = importlib.util.spec_from_file_location("exhaustive_functions", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    """Bit patterns: 512 of every sign and exponent, its ends included, and the neighbourhood of every switch in the functions."""
    random = np.random.default_rng(20)
    mantissas = np.concatenate([[0, 1, 2, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF], random.integers(0, 1 << 23, 505)])
    bits = (np.arange(512, dtype=np.uint64)[:, None] << 23 | mantissas.astype(np.uint64)).reshape(-1)
    switches = np.array([0.625, 0.3466, 1.0, 88.72283, -87.33655, -103.97, -104.0, 89.0, 100.0, 2.0**0.5, 0.5**0.5, 2.0**-126], F)
    near = switches.view(np.uint32).astype(np.int64)[:, None] + np.arange(-200, 201)
    return np.concatenate([bits, near.reshape(-1).astype(np.uint64)]).astype(np.uint32)


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "tanh", "softplus"])
def test_within_two_ulp_everywhere_with_the_same_bits(judge: ModuleType, sample: np.ndarray, name: str) -> None:
    try:
        results = {isa: judge.compute(name, sample, isa) for isa in _core.isas()}
    finally:
        _core.use_isa(_core.isas()[-1])
    verdict = judge.judge(name, sample, results)
    assert verdict.good, f"{verdict.worst} ulp at 0x{verdict.at:08x}; {verdict.disagreement}"


@pytest.mark.parametrize(
    ("name", "x", "wrong"),
    [
        ("exp", 1.0, np.exp(1.0) * (1 + 3 * 2.0**-22)),
        ("tanh", -0.0, 0.0),
        ("exp", 100.0, LARGEST),
        ("exp", -100.0, 0.0),
        ("exp", 0.0, NAN),
        ("log", -1.0, INF),
        ("log", -1.0, -NAN),
    ],
)
def test_the_judge_sees_an_error(judge: ModuleType, name: str, x: float, wrong: float) -> None:
    """Some ulp off, a wrong sign of zero, a missed overflow, a flushed subnormal, a wrong NaN; and instruction sets that differ."""
    bits = np.array([x], F).view(np.uint32)
    right, bad = own(name, bits.view(F)), np.array([wrong], F)
    assert judge.judge(name, bits, {"a": right, "b": right}).good
    assert not judge.judge(name, bits, {"a": bad}).good
    assert judge.judge(name, bits, {"a": right, "b": bad}).disagreement


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("exp", 0.0, 1.0),
        ("exp", -0.0, 1.0),
        ("exp", -INF, 0.0),
        ("exp", INF, INF),
        ("exp", -104.0, 0.0),
        ("exp", -LARGEST, 0.0),
        ("exp", 89.0, INF),
        ("exp", LARGEST, INF),
        ("exp", SMALLEST, 1.0),
        ("log", 1.0, 0.0),
        ("log", 0.0, -INF),
        ("log", -0.0, -INF),
        ("log", INF, INF),
        ("log", -1.0, NAN),
        ("log", -SMALLEST, NAN),
        ("log", -INF, NAN),
        ("sigmoid", 0.0, 0.5),
        ("sigmoid", -0.0, 0.5),
        ("sigmoid", INF, 1.0),
        ("sigmoid", -INF, 0.0),
        ("sigmoid", 100.0, 1.0),
        ("tanh", 0.0, 0.0),
        ("tanh", -0.0, -0.0),
        ("tanh", SMALLEST, SMALLEST),
        ("tanh", -SMALLEST, -SMALLEST),
        ("tanh", INF, 1.0),
        ("tanh", -INF, -1.0),
        ("tanh", 20.0, 1.0),
        ("softplus", -INF, 0.0),
        ("softplus", INF, INF),
        ("softplus", LARGEST, LARGEST),
        ("softplus", 200.0, 200.0),
    ],
)
def test_special_values(name: str, x: float, y: float) -> None:
    got = own(name, np.array([x], F))
    assert got.view(np.uint32)[0] == np.array([y], F).view(np.uint32)[0], (got, y)


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "tanh", "softplus"])
def test_every_nan_gives_the_one_nan(name: str) -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FABCDEF], np.uint32)
    assert (own(name, nans.view(F)).view(np.uint32) == 0x7FC00000).all()


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33, 4096, 40001])
def test_any_length_and_in_place(n: int) -> None:
    """Tails go through scratch: nothing beside the array changes and position does not matter."""
    x = np.random.default_rng(n).normal(0, 3, n).astype(F)
    padded = np.full(n + 32, 7.0, F)
    padded[16 : 16 + n] = x
    view = padded[16 : 16 + n]
    _core.tanh_(view, view)
    assert (padded[:16] == 7.0).all()
    assert (padded[16 + n :] == 7.0).all()
    each = np.array([own("tanh", x[i : i + 1])[0] for i in range(0, n, 97)], F)
    assert np.array_equal(view[::97], each)


def test_subnormal_results_and_arguments_are_kept() -> None:
    x = np.array([-90.0, -100.0, -103.5], F)
    assert (own("exp", x) > 0).all()
    assert (own("sigmoid", x) == own("exp", x)).all()
    assert own("log", np.array([SMALLEST], F))[0] == F(np.log(2.0**-149))


def test_the_emulated_fma_is_exact() -> None:
    """The numpy fma of contract.py against rational arithmetic: random, cancelling, subnormal and huge operands."""
    random = np.random.default_rng(3)
    a = random.normal(0, 1, 3000).astype(F)
    b = random.normal(0, 1, 3000).astype(F)
    c = random.normal(0, 1, 3000).astype(F)
    c[:1000] = -(a[:1000] * b[:1000])
    a[1000:1500] *= F(2.0**-75)
    b[1000:1500] *= F(2.0**-70)
    c[1000:1500] *= F(2.0**-140)
    a[1500:2000] *= F(2.0**60)
    b[1500:2000] *= F(2.0**60)
    got = fma(a, b, c)
    for i in range(a.size):
        if got[i] != 0 and np.isfinite(got[i]):
            assert got[i] == fma_exact(float(a[i]), float(b[i]), float(c[i])), i


@pytest.mark.parametrize("what", ["type", "size", "layout"])
def test_wrong_arrays_are_refused_by_name(what: str) -> None:
    x = np.zeros(32, F)
    y = {"type": np.zeros(32), "size": np.zeros(31, F), "layout": np.zeros(64, F)[::2]}[what]
    with pytest.raises(ValueError, match=r"^y: needed .*, found "):
        _core.exp_(y, x)
