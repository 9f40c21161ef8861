"""The float64 reference as tests use it, and how far a float32 engine may lie from it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

REFERENCE_FILE = Path(__file__).resolve().parent.parent / "tools" / "reference.py"


def load_reference(name: str = "reference", source: str | None = None) -> ModuleType:
    """tools/reference.py as a module; with `source` a changed text of it instead."""
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(REFERENCE_FILE))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    text = REFERENCE_FILE.read_text(encoding="utf-8") if source is None else source
    exec(compile(text, str(REFERENCE_FILE), "exec"), module.__dict__)
    return module


reference = load_reference()


@dataclass(frozen=True)
class Tolerance:
    """Largest absolute differences that float32 arithmetic explains. `choices` is the smallest router margin to rely on."""

    logits: float
    hidden: float
    weights: float
    choices: float


def float32_tolerance(model: Any, ids: Sequence[int]) -> Tolerance:
    """Measured, because it depends on the checkpoint: what random changes of all weights by half a float32 ulp do, times 25.

    Of 400 random checkpoints run in float32 by numpy the worst was at 10 times that change, the median at 2.
    """
    exact, exact_tensors = model.forward(ids), model.tensors
    rng = np.random.default_rng(0)
    logits = hidden = weights = 0.0
    for _ in range(2):
        model.tensors = {
            name: w if w.dtype == np.uint8 else w * (1 + 6e-8 * rng.uniform(-1, 1, w.shape)) for name, w in exact_tensors.items()
        }
        moved = model.forward(ids)
        logits = max(logits, float(np.abs(moved.logits - exact.logits).max()))
        hidden = max(hidden, float(np.abs(moved.hidden - exact.hidden).max()))
        for a, b in zip(moved.expert_weights, exact.expert_weights, strict=True):
            weights = max(weights, float(np.abs(a - b).max()))
    model.tensors = exact_tensors
    return Tolerance(25 * logits + 1e-5, 25 * hidden + 1e-5, 25 * weights + 1e-6, max(25 * weights, 2e-5))


def smallest_margin(result: Any) -> float:
    """Over all layers and tokens; infinite where nothing is routed."""
    return min((float(m.min()) for m in result.router_margins), default=float("inf"))
