"""What the plan says a pass takes is what it takes: arrays counted by tracemalloc while the real layers run."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from demands import config_of
from models import build_model

from lilliput.engine import scheduler
from lilliput.machine import footprint
from lilliput.model.batch import Span
from lilliput.model.config import Config
from lilliput.model.layout import layout
from lilliput.model.model import Model
from lilliput.model.state import JOURNAL_TOKENS, State
from lilliput.weights.layout import EMBEDDING, HEAD

K3 = config_of("k3")


def peak_of_a_pass(model: Model, tokens: int) -> int:
    """The most bytes of arrays that a pass over a prompt of `tokens` has alive at once, beyond the empty state."""
    ids = [i % 250 for i in range(tokens)]
    state = State(model.config)
    model.forward([Span(State(model.config), ids[:1])])  # whatever is made once
    gc.collect()
    tracemalloc.start()
    model.forward([Span(state, ids)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("tokens", [JOURNAL_TOKENS, 1024])
def test_a_pass_takes_what_is_planned(tiny_synth: Path, tokens: int) -> None:
    model = build_model(tiny_synth)
    config = model.config
    planned = tokens * footprint.token_bytes(config) + footprint.change_bytes(config, tokens) + footprint.latent_bytes(config, tokens)
    overhead = 200_000  # Python's own objects: a few hundred arrays, whatever their size
    # The last KDA layer is not the last layer: what its successors add is not there yet when it is at its widest.
    assert 0.85 * planned < peak_of_a_pass(model, tokens) < planned + overhead


def test_a_prompt_of_many_chunks_takes_no_more_than_one_chunk(tiny_synth: Path) -> None:
    """Journals go when they are committed, not when their span is forgotten."""
    model, chunk, tokens = build_model(tiny_synth), JOURNAL_TOKENS, 8 * JOURNAL_TOKENS
    config = model.config
    ids = [i % 250 for i in range(tokens)]
    state = State(config)
    model.forward([Span(State(config), ids)])  # whatever is made once: pins and experts become objects
    gc.collect()
    tracemalloc.start()
    for parts in scheduler.run(model, [scheduler.Work(state, ids, [tokens - 1])], chunk):
        last = parts[-1].span
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(last.logits) == 1
    planned = chunk * footprint.token_bytes(config) + footprint.change_bytes(config, chunk) + footprint.latent_bytes(config, tokens)
    assert peak < planned + footprint.result_bytes(config, 1) + 200_000


def test_the_widest_point_of_the_released_model() -> None:
    """By hand, per token: eight frozen sums and the running one, three more rows of 7168, and in an MLA layer 96 heads of queries (192),
    the latents (576), queries absorbed (576) and sums over latents (512) per head, values and gate (128 each)."""
    stream = (9 + 3) * 7168
    mla = 96 * 192 + 576 + 96 * 576 + 96 * 512 + 2 * 96 * 128
    assert footprint.token_bytes(K3) == 4 * (stream + mla)
    kda = 11 * 96 * 128 + 2 * 96 + 128
    assert footprint.token_bytes(replace(K3, is_kda=(True,) * 93)) == 4 * (stream + kda)
    dense = 2 * 33792 + 7168
    everywhere_dense = replace(K3, is_kda=(True,) * 93, first_k_dense_replace=93, attn_res_block_size=None, hidden_size=7168)
    assert footprint.token_bytes(everywhere_dense) == 4 * (4 * 7168 + max(kda, dense))


def test_states_and_journals_by_hand() -> None:
    assert footprint.kda_state_bytes(K3) == 464_633_856
    assert [footprint.latent_bytes(K3, n) for n in (0, 1, 128, 129)] == [0, 128 * 55_296, 128 * 55_296, 256 * 55_296]
    journal = 69 * 4 * (6 * 12_288 + 96)
    assert footprint.journal_bytes(K3) == journal
    assert [footprint.change_bytes(K3, n) for n in (1, 16, 17)] == [journal, 16 * journal, 464_633_856]


def test_scratch_of_the_released_model_by_hand() -> None:
    """The calling thread permutes 64 tokens of the dense MLP's 33,792 columns and keeps the hidden layers of 64 tokens' experts.

    Each thread has 96 heads of 512 + 576 + 130 floats for attention, 64 tokens of latents, a head's 128 decoded rows, and the sums and
    weights of a product.
    """
    caller = 64 * 4 * 33_792 + 64 * 4 * (2 * 3072 + 3584)
    thread = 4 * 96 * (2 * 512 + 64 + 128 + 2) + 64 * 4 * 512 + 2 * 128 * 512 + 4 * (2**16 + 8 * 4 * 9 * 16)
    assert footprint.scratch_bytes(K3, 512, 1) == caller + thread
    assert footprint.scratch_bytes(K3, 512, 8) == caller + 8 * thread
    one = 4 * 16 * 3584 + 16 * 4 * (2 * 3072 + 3584)  # sixteen experts at once
    assert footprint.scratch_bytes(K3, 1, 1) == one + 4 * 96 * (2 * 512 + 64 + 128 + 2) + 4 * 512 + 2 * 128 * 512


@pytest.mark.parametrize("tokens", [1, 5, 130])
def test_the_kernels_keep_as_much_working_memory_as_is_planned(tiny_synth: Path, tokens: int) -> None:
    """Counted by the core itself, in a process of its own."""
    program = f"""
    from lilliput import _core
    from lilliput.engine.engine import Engine
    from lilliput.engine.source import Source
    from lilliput.machine import footprint
    from lilliput.machine.plan import Budget
    with Engine(Source({str(tiny_synth)!r}), budget=Budget(900_000_000), context=256, prompt={tokens}, threads=2) as engine:
        session = engine.session()
        session.extend(list(range(1, 1 + {tokens})))
        session.logits()
        print(_core.scratch_bytes(), footprint.scratch_bytes(engine.config, {tokens}, 2))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    kept, planned = map(int, done.stdout.split())
    assert 0.3 * planned < kept <= planned


def test_resident_vectors_are_those_that_are_loaded(tiny_synth: Path) -> None:
    model = build_model(tiny_synth)
    assert footprint.resident_bytes(layout(model.config)) == sum(vector.nbytes for vector in model.weights.resident.values())
    mixers = [mixer.w for layer in model.layers for mixer in (layer.attention_mix, layer.mlp_mix)] + [model.final_mix.w]
    assert footprint.mixer_bytes(model.config) == sum(w.nbytes for w in mixers if w is not None)
    released = layout(K3)
    assert footprint.resident_bytes(released) == 4 * sum(
        t.parameters for t in released.trunk if not t.is_matrix and t.name not in (EMBEDDING, HEAD)
    )
    assert 60e6 < footprint.resident_bytes(released) < 65e6  # 62 MB


def test_a_model_without_experts_or_mixers_has_no_bookkeeping_for_them() -> None:
    dense: Config = replace(K3, first_k_dense_replace=93, attn_res_block_size=None)
    assert footprint.bookkeeping_bytes(dense, 0) == 0
