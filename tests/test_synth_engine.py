"""The engine runs the synthetic checkpoints: finite logits at every position, and only the ids that have rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lilliput
from lilliput.errors import UsageError


def logits(directory: Path, ids: list[int]) -> np.ndarray:
    with lilliput.open(str(directory)) as engine:
        return np.concatenate([np.array(block) for block in engine.logits(ids)])


def test_mini_has_finite_logits_at_every_position(mini: Path) -> None:
    found = logits(mini, [*range(0, 256, 4), 4607])
    assert found.shape == (65, 4608)
    assert np.isfinite(found).all()
    assert (found.std(-1) > 0.5).all()
    assert len(set(found.argmax(-1).tolist())) > 32  # the ids depend on the tokens


def test_tiny_has_finite_logits_for_every_id(tiny_synth: Path) -> None:
    found = logits(tiny_synth, [i for i in range(640) if i != 277])  # 277 stands for an image
    assert np.isfinite(found).all()
    assert (found.std(-1) > 0.5).all()


def test_ids_without_rows_are_refused_in_the_full_size(k3_sparse: Path) -> None:
    with lilliput.open(str(k3_sparse), layers=1) as engine, pytest.raises(UsageError, match="256"):
        next(iter(engine.logits([1, 256])))
