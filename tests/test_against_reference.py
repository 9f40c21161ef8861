"""The engine against the float64 reference on random checkpoints: every supported variant, any way of writing the files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from agreement import float32_tolerance, reference, smallest_margin
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from models import build_model
from random_checkpoint import Raw, make_tensors, random_config, write_checkpoint
from strategies import checkpoint_options, configs, configs_and_ids

from lilliput.model.batch import Span
from lilliput.model.config import read_config
from lilliput.model.layout import layout
from lilliput.model.state import State


class First:
    """Takes the first, plainest choice everywhere."""

    def choice(self, seq: Any, /) -> Any:
        return seq[0]


PLAIN = random_config(First())
DEEP = random_config(First(), attn_res_block_size=12, layers="MKKM" * 3 + "KM", first_k_dense_replace=1)


@settings(max_examples=60)
@given(configs_and_ids(max_size=40), st.integers(0, 999), checkpoint_options(), st.lists(st.integers(0, 40), max_size=3))
@example((PLAIN, list(range(20))), 0, {}, [])
@example((DEEP, list(range(60, 0, -1))), 0, {}, [17, 20])
@example((PLAIN, [n * n % 64 for n in range(200)]), 0, {}, [100])
def test_logits_sums_and_routing(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Raw, list[int]], seed: int, options: dict[str, Any], cuts: list[int]
) -> None:
    """In one to four passes, cut anywhere."""
    raw, ids = drawn
    directory = write_checkpoint(tmp_path_factory.mktemp("random"), raw, seed, **options)
    exact_model = reference.Reference(directory)
    exact, tolerance = exact_model.forward(ids), float32_tolerance(exact_model, ids)
    assume(smallest_margin(exact) > tolerance.choices)  # else either choice is right

    model, sums, routes = build_model(directory), [], []
    model.weights.watch.on_layer.append(lambda layer, s: sums.append((layer, s.copy())))
    model.weights.watch.on_route.append(lambda layer, i, w: routes.append((layer, i.copy(), w.copy())))
    state, logits = State(model.config), []
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    for start, end in pairwise(edges):
        span = Span(state, ids[start:end], range(end - start))
        model.forward([span])
        span.commit()
        logits.append(span.logits)

    assert np.abs(np.concatenate(logits) - exact.logits).max() <= tolerance.logits
    for layer in range(model.config.num_layers):
        assert np.abs(np.concatenate([s for i, s in sums if i == layer]) - exact.hidden[layer]).max() <= tolerance.hidden
    moe_layers = [i for i in range(model.config.num_layers) if model.config.is_moe(i)]
    assert len(moe_layers) == len(exact.expert_ids)
    for layer, expected_ids, expected_weights in zip(moe_layers, exact.expert_ids, exact.expert_weights, strict=True):
        assert np.array_equal(np.concatenate([i for at, i, _ in routes if at == layer]), expected_ids)
        assert np.abs(np.concatenate([w for at, _, w in routes if at == layer]) - expected_weights).max() <= tolerance.weights


@settings(max_examples=60)
@given(configs())
def test_layout_demands_exactly_the_tensors_of_the_specification(tmp_path_factory: pytest.TempPathFactory, raw: Raw) -> None:
    directory = write_checkpoint(tmp_path_factory.mktemp("random"), raw, 0)
    wanted = layout(read_config(directory))
    demanded = {t.name: (t.shape, t.dtype) for t in wanted.trunk}
    if wanted.experts is not None:
        spec = wanted.experts
        for layer in spec.layers:
            for e in range(spec.num_experts):
                demanded |= {spec.name(layer, e, part): (shape, "U8") for part, shape in enumerate(spec.shapes)}
    heads = raw.get("text_config", raw)["linear_attn_config"]["num_heads"]
    written = {t.name: (t.values.shape, t.dtype) for t in make_tensors(raw, 0, a_log_length=heads)}
    assert demanded == written
