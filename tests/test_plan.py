"""The plan: every byte counted, nothing beyond the budget, and no better split to be had."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from demands import BASE, demand, demands
from hypothesis import given
from hypothesis import strategies as st

from lilliput.errors import DoesNotFitError
from lilliput.machine import footprint
from lilliput.machine.costs import Rates
from lilliput.machine.demand import Demand, demand_of
from lilliput.machine.memory import parse_size
from lilliput.machine.plan import RING_PIECES, WINDOW_LEAST, Budget, Plan, make_plan
from lilliput.weights.pieces import PieceSpec

GB = 10**9
K3, K3_PACKED = demand(), demand(packed=True)

# The released model by hand: 93 layers, 69 of KDA with 96 heads of 128 x 128 and three convolutions of 4 taps, 24 of MLA with latents of
# 512 + 64; 92 layers of 896 experts of 17,547,264 bytes.
STATE = 69 * 4 * (96 * 128 * 128 + 3 * 96 * 128 * 3)
POSITION = 24 * 4 * (512 + 64)
KV_B = 96 * (128 + 128) * 512 * 2
JOURNAL = 69 * 4 * (6 * 96 * 128 + 96)

RATES = st.builds(Rates, *[st.floats(1e7, 1e11)] * 3, st.floats(0, 1))


def line(plan: Plan, name: str) -> int:
    return next(line.nbytes for line in plan.lines if line.name == name)


def sizes_in(message: str) -> list[int]:
    return [parse_size(found, "test") for found in re.findall(r"\d[\d.]*[KMGT]?B\b", message)]


def test_the_released_models_numbers_are_those_of_the_specification() -> None:
    assert (STATE, POSITION, KV_B) == (464_633_856, 55_296, 25_165_824)
    assert round(sum(K3.piece_bytes) / GB, 1) == 111.1
    assert round(sum(K3_PACKED.piece_bytes) / GB, 1) in (83.3, 83.4)  # here without a table and escapes
    plan = make_plan(K3, Budget(8 * GB), context=1000, prompt=600)
    assert line(plan, "process") == BASE
    assert line(plan, "recurrent states") == STATE
    assert line(plan, "latents") == 1024 * POSITION
    assert line(plan, "pass in flight") == STATE  # long prompt chunks write a second state
    assert 17_547_264 <= K3.slot_bytes < 17_547_264 + 12 * 4096
    assert line(plan, "expert window") == plan.window_slots * K3.slot_bytes
    assert line(plan, "ring") == plan.ring_bytes > KV_B
    assert plan.chunk == 512
    config = K3.config
    assert line(plan, "activations") == 512 * footprint.token_bytes(config)
    assert line(plan, "kernel scratch") == footprint.scratch_bytes(config, 512, 2)
    assert line(plan, "logits") >= 2 * 4 * 163_840
    assert line(plan, "bookkeeping") == footprint.bookkeeping_bytes(config, len(K3.piece_bytes))
    assert 8_000_000 <= line(plan, "allocator slack") <= 0.025 * 8 * GB


def test_a_short_prompt_takes_journals_and_no_second_state() -> None:
    plan = make_plan(K3, Budget(8 * GB), context=8, prompt=5)
    assert plan.chunk == 5
    assert line(plan, "pass in flight") == 5 * JOURNAL
    assert 20_000_000 < JOURNAL < 21_000_000
    assert line(plan, "latents") == 128 * POSITION


@pytest.mark.parametrize("model", [K3, K3_PACKED], ids=["in place", "packed"])
def test_the_full_size_fits_in_one_gigabyte_and_says_what_it_needs_below(model: Demand) -> None:
    assert make_plan(model, Budget(2 * GB), context=8, prompt=5).total <= 2 * GB
    assert make_plan(model, Budget(1 * GB), context=8, prompt=5).total <= 1 * GB
    with pytest.raises(DoesNotFitError) as refused:
        make_plan(model, Budget(GB // 2), context=8, prompt=5)
    assert refused.value.exit_code == 3
    have, needed, short, enough = sizes_in(str(refused.value))
    assert have == GB // 2
    assert needed - have == pytest.approx(short, abs=3000)
    assert make_plan(model, Budget(enough), context=8, prompt=5).total <= enough
    with pytest.raises(DoesNotFitError):
        make_plan(model, Budget(enough - 20_000_000), context=8, prompt=5)


def test_what_is_given_is_used() -> None:
    for gigabytes in (3, 5, 8, 16, 32, 100, 224):
        total = make_plan(K3, Budget(gigabytes * GB), context=100, prompt=5).total
        assert gigabytes * GB - 30_000_000 <= total <= gigabytes * GB  # less than one kv_b or expert is left over


def test_a_context_that_does_not_fit_names_one_that_does() -> None:
    with pytest.raises(DoesNotFitError) as refused:
        make_plan(K3, Budget(2 * GB), context=100_000)
    shorter = int(re.findall(r"a context of ([\d,]+)", str(refused.value))[-1].replace(",", ""))
    assert 10_000 < shorter < 100_000
    make_plan(K3, Budget(2 * GB), context=shorter)
    with pytest.raises(DoesNotFitError):
        make_plan(K3, Budget(2 * GB), context=shorter + 128)


def test_more_sequences_take_more_states_and_are_refused_by_their_number() -> None:
    one, four = (make_plan(K3, Budget(16 * GB), batch=n, context=256, prompt=5) for n in (1, 4))
    assert line(four, "recurrent states") == 4 * line(one, "recurrent states") == 4 * STATE
    assert line(four, "latents") == 4 * line(one, "latents")
    assert line(four, "pass in flight") == (5 + 3) * JOURNAL
    assert one.expert_bytes_per_token > four.expert_bytes_per_token
    assert one.seconds_per_token > four.seconds_per_token
    with pytest.raises(DoesNotFitError, match=r"4 sequences .*fewer sequences at a time"):
        make_plan(K3, Budget(2 * GB), batch=4, context=256)


def test_all_logits_of_a_chunk_are_counted() -> None:
    few, all_of_them = (make_plan(K3, Budget(8 * GB), context=512, prompt=512, all_logits=wanted) for wanted in (False, True))
    assert line(all_of_them, "logits") - line(few, "logits") == 2 * (all_of_them.chunk - 1) * 163_840 * 4


@pytest.mark.parametrize("shape", ["tiny", "mini"])
def test_what_fits_as_a_whole_is_kept_as_a_whole(shape: str) -> None:
    model = demand(shape)
    plan = make_plan(model, Budget(8 * GB))
    assert plan.pins == frozenset(range(len(model.piece_bytes)))
    assert (plan.trunk_bytes_per_pass, plan.expert_bytes_per_token, plan.ring_bytes) == (0, 0, 0)
    given = make_plan(model, Budget(8 * GB, trunk=model.tape_bytes, experts=GB))
    assert (given.ring_bytes, given.pin_bytes, given.trunk_bytes_per_pass) == (0, model.tape_bytes, 0)
    assert plan.expert_slots == model.moe_layers * model.config.moe.num_experts
    assert plan.total < 8 * GB


def test_bytes_read_are_those_of_the_pieces_that_are_not_pinned() -> None:
    aligned = Demand(K3.config, (8192, 8192, 4096), 1, 8192, 0, 0, read_bytes=(7680, 8192, 3584))
    plan = make_plan(replace(aligned, config=replace(K3.config, first_k_dense_replace=93)), Budget(900_000_000), context=8, prompt=1)
    assert plan.trunk_bytes_per_pass == 0
    plan = make_plan(K3, Budget(20 * GB))
    assert plan.trunk_bytes_per_pass == sum(n for i, n in enumerate(K3.piece_bytes) if i not in plan.pins)
    half = replace(K3, read_bytes=tuple(n // 2 for n in K3.piece_bytes))
    assert make_plan(half, Budget(20 * GB)).trunk_bytes_per_pass == sum(n for i, n in enumerate(half.read_bytes) if i not in plan.pins)


def test_a_demand_counts_whole_aligned_blocks() -> None:
    pieces = [
        PieceSpec("a.kv_b_proj.weight", 0, 4, 100, "bf16", 0, 3088, 800),
        PieceSpec("b.weight", 0, 4, 100, "bf16", 0, 4090, 8),
        PieceSpec("lm_head.weight", 0, 4, 100, "bf16", 0, 8192, 4096),
    ]
    found = demand_of(K3.config, pieces, slot=7, base_bytes=9, threads=3)
    assert found.piece_bytes == (4096, 8192, 4096)
    assert (found.head_pieces, found.held_bytes, found.streamed_bytes) == (1, 4096, 8192)
    assert (found.slot_bytes, found.base_bytes, found.threads) == (7, 9, 3)


@given(demands(), st.integers(20_000_000, 2 * GB), st.integers(1, 3), st.integers(1, 5000), RATES, st.data())
def test_no_plan_exceeds_its_budget_and_every_refusal_has_numbers(
    model: Demand, total: int, batch: int, context: int, rates: Rates, data: st.DataObject
) -> None:
    prompt = data.draw(st.none() | st.integers(1, context))
    trunk, experts = data.draw(st.none() | st.integers(1, total)), data.draw(st.none() | st.integers(1, total))
    plan, refusal = None, ""
    try:
        plan = make_plan(model, Budget(total, trunk, experts), batch=batch, context=context, prompt=prompt, rates=rates)
    except DoesNotFitError as error:
        refusal = str(error)
    if plan is None:
        assert len(sizes_in(refusal)) >= 2 or "has no experts" in refusal
        return
    assert plan.total <= total
    assert all(line.nbytes >= 0 for line in plan.lines)
    assert plan.pins <= frozenset(range(len(model.piece_bytes)))
    assert plan.pin_bytes == sum(model.piece_bytes[i] for i in plan.pins) == line(plan, "pins")
    assert plan.trunk_bytes_per_pass == sum(model.piece_bytes) - plan.pin_bytes
    if plan.trunk_bytes_per_pass:
        assert plan.ring_bytes >= min(model.held_bytes + RING_PIECES * model.largest, model.tape_bytes)
    if model.slot_bytes:
        assert plan.window_slots >= WINDOW_LEAST
        assert 0 <= plan.expert_slots <= model.moe_layers * model.config.moe.num_experts
        assert plan.expert_bytes_per_token >= 0
    assert 1 <= plan.chunk <= 512
    if trunk is not None:
        unused = trunk - plan.ring_bytes - plan.pin_bytes
        assert unused >= 0
        assert unused < max(model.piece_bytes) or len(plan.pins) == len(model.piece_bytes)
    if experts is not None:
        unused = experts - (plan.expert_slots + plan.window_slots) * model.slot_bytes
        assert unused >= 0
        assert unused < model.slot_bytes or plan.expert_bytes_per_token == 0


@given(demands(), st.integers(20_000_000, 2 * GB), st.integers(0, GB), st.integers(1, 4), RATES)
def test_more_memory_never_reads_more(model: Demand, total: int, more: int, batch: int, rates: Rates) -> None:
    try:
        small = make_plan(model, Budget(total), batch=batch, context=200, prompt=1, rates=rates)
    except DoesNotFitError:
        return
    large = make_plan(model, Budget(total + more), batch=batch, context=200, prompt=1, rates=rates)
    assert large.pins >= small.pins
    assert large.expert_slots >= small.expert_slots
    assert large.trunk_bytes_per_pass <= small.trunk_bytes_per_pass
    assert large.expert_bytes_per_token <= small.expert_bytes_per_token
    assert large.seconds_per_token <= small.seconds_per_token


@given(demands().filter(lambda d: d.slot_bytes > 0), st.integers(20_000_000, 2 * GB), RATES, st.floats(0, 1))
def test_no_other_split_is_quicker(model: Demand, total: int, rates: Rates, share: float) -> None:
    try:
        ours = make_plan(model, Budget(total), context=200, prompt=1, rates=rates)
        rest = total - sum(line.nbytes for line in ours.lines if line.name not in ("ring", "pins", "expert window", "expert cache"))
        other = make_plan(model, Budget(total, None, int(rest * share)), context=200, prompt=1, rates=rates)
    except DoesNotFitError:
        return
    # The other may have put into experts what is the ring's here and the window's there; and pieces and slots do not divide.
    grain = ours.ring_bytes + ours.window_slots * model.slot_bytes + max(model.piece_bytes) + model.slot_bytes
    assert ours.seconds_per_token <= other.seconds_per_token + grain / rates.disk_bytes_per_s


def test_the_split_follows_the_machine() -> None:
    """With a slow disk pins come first; where the trunk's arithmetic hides what is left of the stream, experts do."""
    slow, fast = Rates(1e9, 1e11, 1e11), Rates(1e10, 1e10, 1e12)
    assert make_plan(K3, Budget(64 * GB), rates=slow).expert_slots == 0
    plan = make_plan(K3, Budget(64 * GB), rates=fast)
    assert plan.expert_slots > 1000
    # Computing 111 GB at 10 GB/s takes 11 s, in which the disk delivers all of it.
    assert plan.pin_bytes < GB


def test_overrides_that_cannot_be_are_refused_with_numbers() -> None:
    with pytest.raises(DoesNotFitError, match=r"--trunk-memory 10MB: needed at least \d+"):
        make_plan(K3, Budget(8 * GB, trunk=10_000_000))
    with pytest.raises(DoesNotFitError, match=r"--expert-memory 20MB: needed at least \d+"):
        make_plan(K3, Budget(8 * GB, experts=20_000_000))
    with pytest.raises(
        DoesNotFitError, match=r"--trunk-memory 4GB and --expert-memory 4GB with --memory 8GB: short by .*what would fit: --memory"
    ):
        make_plan(K3, Budget(8 * GB, 4 * GB, 4 * GB))
    both = make_plan(K3, Budget(8 * GB, 3 * GB, 2 * GB))
    assert both.total < 8 * GB
    assert both.pin_bytes + both.ring_bytes <= 3 * GB
    one = make_plan(K3, Budget(8 * GB, experts=2 * GB))
    assert one.pin_bytes > both.pin_bytes
    assert one.total > 7.9 * GB


def test_a_budget_without_a_total_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="settle"):
        make_plan(K3, Budget(None))
