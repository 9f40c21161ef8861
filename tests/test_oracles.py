"""The engine against reference outputs recorded from independent implementations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from models import all_logits, build_model, greedy

from lilliput.model.model import Model


class Recorded:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        expected = json.loads((directory / "expected.json").read_text())
        self.prompt, self.greedy = expected["prompt_ids"], expected["greedy_ids"]
        self.ids = self.prompt + self.greedy
        self.tolerance = expected["logits_max_abs_tolerance"]
        self.hidden_positions = expected["hidden_positions"]
        self.logits, self.hidden = np.load(directory / "logits.npy"), np.load(directory / "hidden.npy")
        self.routing = np.load(directory / "routing.npz")


class Run:
    """One pass over all of an oracle's ids, with everything the recording holds."""

    def __init__(self, model: Model, recorded: Recorded) -> None:
        self.sums: list[np.ndarray] = []
        self.ids: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []
        model.weights.watch.on_layer.append(lambda _layer, s: self.sums.append(s.copy()))
        model.weights.watch.on_route.append(lambda _layer, ids, weights: (self.ids.append(ids.copy()), self.weights.append(weights.copy())))
        self.logits = all_logits(model, recorded.ids)


@pytest.fixture(scope="module")
def recorded(oracle: Path) -> Recorded:
    return Recorded(oracle)


@pytest.fixture(scope="module")
def model(recorded: Recorded) -> Model:
    return build_model(recorded.directory)


@pytest.fixture(scope="module")
def run(recorded: Recorded) -> Run:
    return Run(build_model(recorded.directory), recorded)


def test_logits_are_within_the_stated_tolerance_and_argmax_equal_everywhere(run: Run, recorded: Recorded) -> None:
    assert np.abs(run.logits - recorded.logits).max() <= recorded.tolerance
    assert np.array_equal(run.logits.argmax(1), recorded.logits.argmax(1))


def test_hidden_sums_after_every_layer(run: Run, recorded: Recorded) -> None:
    sums = np.stack(run.sums)[:, recorded.hidden_positions]
    assert np.abs(sums - recorded.hidden).max() <= recorded.tolerance


def test_routing(run: Run, recorded: Recorded) -> None:
    assert np.array_equal(np.stack(run.ids), recorded.routing["idx"])
    assert np.abs(np.stack(run.weights) - recorded.routing["weight"]).max() <= 1e-4


def test_greedy_ids(model: Model, recorded: Recorded) -> None:
    assert greedy(model, recorded.prompt, len(recorded.greedy)) == recorded.greedy
