"""Experts: read once a request, kept as the policy says, applied in any order of arrival with the same bits."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import numpy as np
import pytest
from models import all_logits, build_model
from reading_files import resident_pages

from lilliput._core import FaultPlan
from lilliput.weights.experts import Experts

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
IDS = json.loads((TINY_A / "expected.json").read_text())["prompt_ids"]


def experts_of(**options: object) -> Experts:
    experts = build_model(TINY_A, "from disk", **options).weights.experts  # type: ignore[arg-type]
    assert experts is not None
    return experts


def apply(experts: Experts, layer: int, ids: list[list[int]]) -> bytes:
    chosen = np.array(ids, np.int32)
    x = np.linspace(-2, 3, len(ids) * 64, dtype=np.float32).reshape(len(ids), 64)
    weights = np.linspace(0.1, 0.9, chosen.size, dtype=np.float32).reshape(chosen.shape)
    return experts.request(layer, chosen).apply(weights, x, 4.0, 25.0).tobytes()


def test_each_expert_is_read_once_however_many_tokens_chose_it() -> None:
    experts = experts_of()
    apply(experts, 3, [[1, 2, 5, 9], [2, 5, 9, 15], [0, 2, 5, 9]])
    assert (experts.stats.reads, experts.stats.hits) == (6, 0)


def test_a_hit_costs_no_read_and_counts_stay_true(monkeypatch: pytest.MonkeyPatch) -> None:
    experts, looked_through = experts_of(expert_slots=4), []
    monkeypatch.setattr(experts, "look_through", lambda layer, expert, landing: looked_through.append((layer, expert)))
    apply(experts, 3, [[1, 2, 5, 9]])
    before = experts.stats.bytes_read
    apply(experts, 3, [[1, 2, 5, 9]])
    assert (experts.stats.reads, experts.stats.hits, experts.stats.bytes_read) == (4, 4, before)
    assert sorted(looked_through) == [(3, 1), (3, 2), (3, 5), (3, 9)]


@pytest.mark.parametrize("policy", ["lru", "lfu", "layered", "forecast"])
def test_any_policy_and_size_gives_the_same_bits(policy: str) -> None:
    want = all_logits(build_model(TINY_A), IDS, chunk=4).tobytes()
    for slots in (0, 1, 5, 40, 192):
        for window in (1, 3):
            model = build_model(TINY_A, "from disk", expert_slots=slots, window=window, policy=policy)
            assert all_logits(model, IDS, chunk=4).tobytes() == want


def test_results_that_arrive_early_wait_for_the_lower_ids() -> None:
    in_order = apply(experts_of(window=16), 2, [[0, 3, 7, 12]] * 3)
    for seed in range(4):
        faults = FaultPlan(seed=seed, delay_us_max=2000, reorder=True)
        experts = experts_of(window=16, faults=faults, reader_threads=8)
        assert apply(experts, 2, [[0, 3, 7, 12]] * 3) == in_order


def test_whichever_expert_is_there_goes_next_while_there_is_room_for_results() -> None:
    faults = FaultPlan()
    experts = experts_of(window=4, expert_slots=4, faults=faults)
    apply(experts, 2, [[12, 13, 14, 15]])
    faults.hold()
    chosen = experts.request(2, np.array([[0, 3, 7, 12]], np.int32))
    assert chosen._next([0, 3, 7, 12], {}) == [12]  # kept; the others are held on their way
    assert chosen._next([0, 3, 7, 12], {12}) == [0]
    assert chosen._next([0, 3, 7, 12], {20, 21, 22, 23}) == [0]  # no room
    faults.release()
    experts.abandon()


def test_experts_that_are_there_are_applied_together_but_never_all_of_the_window() -> None:
    experts = experts_of(window=4, expert_slots=2, policy="lfu")
    apply(experts, 2, [[4, 5, 6, 7]])
    kept = sorted(expert for _, expert in experts._resident)
    assert len(kept) == 2
    chosen = experts.request(2, np.array([[*kept, 12, 13]], np.int32))
    for landing in chosen._landings.values():
        while not experts.is_there(landing):
            pass
    assert chosen._next([*kept, 12, 13], {}) == [*kept, 12, 13]
    assert chosen._next([*kept, 12, 13], {12}) == kept
    experts.abandon()
    chosen = experts.request(2, np.array([[0, 1, 2, 3]], np.int32))
    for landing in chosen._landings.values():
        while not experts.is_there(landing):
            pass
    assert chosen._next([0, 1, 2, 3], {}) == [0, 1]
    experts.abandon()


def test_a_request_that_is_given_up_frees_its_slots() -> None:
    experts = experts_of(expert_slots=3, window=2)
    for _ in range(20):
        experts.request(4, np.array([[0, 1, 2, 3]], np.int32))
    assert experts.stats.reads >= 20
    want = apply(experts_of(), 4, [[0, 1, 2, 3]])
    assert apply(experts, 4, [[0, 1, 2, 3]]) == want
    assert sorted([*experts._window, *experts._free, *(slot for slot, _ in experts._resident.values())]) == list(range(5))


def resident_bytes(experts: Experts) -> int:
    """Page by page: what the system counts for a process is off by megabytes where there are many processors."""
    pages = resident_pages(experts._memory.address, experts._memory.nbytes)
    assert pages is not None
    return pages * mmap.PAGESIZE


def test_a_smaller_cache_gives_memory_back_and_changes_no_bit() -> None:
    want = all_logits(build_model(TINY_A), IDS, chunk=4).tobytes()
    model = build_model(TINY_A, "half", expert_slots=192)
    experts = model.weights.experts
    assert experts is not None
    assert all_logits(model, IDS, chunk=4).tobytes() == want
    held, before = len(experts._resident), resident_bytes(experts)
    assert held > 100
    experts.resize(10)
    assert (experts.kept, len(experts._resident)) == (10, 10)
    assert before - resident_bytes(experts) >= 0.5 * (held - 10) * experts.spec.nbytes
    assert all_logits(model, IDS, chunk=4).tobytes() == want
    experts.resize(10_000)
    assert experts.kept == 192
    assert all_logits(model, IDS, chunk=4).tobytes() == want


def test_an_interrupt_while_the_cache_becomes_smaller_leaves_what_the_policy_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    experts = experts_of(expert_slots=6, window=4)
    want = apply(experts, 4, [[0, 1, 2, 3]])
    apply(experts, 3, [[5, 6]])

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(experts, "_drop", interrupt)
        with pytest.raises(KeyboardInterrupt):
            experts.resize(2)
    experts.abandon()
    assert experts._policy is not None
    assert set(experts._policy.residents()) == set(experts._resident)
    assert len(experts._resident) == 2
    assert sorted([*experts._window, *experts._free, *(slot for slot, _ in experts._resident.values())]) == list(range(10))
    assert apply(experts, 4, [[0, 1, 2, 3]]) == want


def test_an_engine_steps_back_when_the_machine_runs_short(monkeypatch: pytest.MonkeyPatch) -> None:
    import lilliput
    from lilliput.engine import engine as module
    from lilliput.machine.memory import Free

    monkeypatch.setattr(module, "SHARED_BELOW", 0)
    with lilliput.open(TINY_A) as engine:
        experts = engine.weights.experts
        assert experts is not None
        want = [token.id for token in engine.generate(IDS, max_tokens=3)]
        monkeypatch.setattr(module, "system_memory", lambda: Free("MemAvailable", 0))
        assert [token.id for token in engine.generate(IDS, max_tokens=3)] == want
        assert experts.kept < engine.plan.expert_slots
        monkeypatch.setattr(module, "system_memory", lambda: Free("MemAvailable", 10**12))
        monkeypatch.setattr(module, "memory_pressure", lambda: None)
        for _ in range(20):
            engine.step_back()
        assert experts.kept == engine.plan.expert_slots
