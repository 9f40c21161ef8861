"""The expert policies: what every one of them promises the cache, and what the default must reach."""

from __future__ import annotations

import importlib.util
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput.simulate import EXPERT_BYTES, belady, lru_curve, replay
from lilliput.trace import Trace, read_trace
from lilliput.weights.policy import DEFAULT, POLICIES, Forecast, Key, Policy, make_policy

LAYERS, EXPERTS = (3, 4, 7), 12
GB = 10**9

requests = st.lists(st.sets(st.integers(0, EXPERTS - 1), min_size=1, max_size=6).map(sorted), min_size=1, max_size=60)


def load(name: str) -> ModuleType:
    path = Path(__file__).resolve().parent.parent / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


compare_policies = load("compare_policies")


def hits(name: str, trace: Trace, capacity: int) -> int:
    return sum(replay(trace, make_policy(name, capacity, trace.layers, trace.experts)))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=60)
@given(asked=requests, capacity=st.integers(0, 20), tokens=st.sampled_from([1, 1, 3]))
def test_a_verdict_can_be_carried_out(name: str, asked: list[list[int]], capacity: int, tokens: int) -> None:
    """Against a plain set of residents: hits are what is there, nothing needed now is displaced, the capacity holds."""
    policy = make_policy(name, capacity, LAYERS, EXPERTS)
    there: set[Key] = set()
    for turn, ids in enumerate(asked):
        layer = LAYERS[turn % len(LAYERS)]
        uses = [1 + (i + turn) % tokens for i in range(len(ids))]
        verdict = policy.request(layer, ids, uses, tokens)
        assert verdict.hits == [i for i in ids if (layer, i) in there]
        assert verdict.misses == [i for i in ids if (layer, i) not in there]
        assert list(verdict.admitted) == [i for i in verdict.misses if i in verdict.admitted]
        for expert, displaced in verdict.admitted.items():
            if displaced is not None:
                assert displaced not in {(layer, i) for i in ids}
                there.remove(displaced)
            there.add((layer, expert))
        assert len(there) <= capacity
        assert len(policy) == len(there)
        assert set(policy.residents()) == there
        assert all(key in policy for key in there)


@pytest.mark.parametrize("name", ["forecast", "lfu", "lru"])
def test_an_empty_slot_is_never_left_empty(name: str) -> None:
    policy = make_policy(name, 4, LAYERS, EXPERTS)
    assert policy.request(3, [1, 5, 9]).admitted == {1: None, 5: None, 9: None}
    assert len(policy.request(4, [0, 2]).admitted) >= 1
    assert len(policy) == 4


@pytest.mark.parametrize("name", POLICIES)
def test_a_failed_read_and_a_smaller_cache(name: str) -> None:
    policy = make_policy(name, 6, LAYERS, EXPERTS)
    for layer in LAYERS:
        policy.request(layer, [1, 2])
    before = set(policy.residents())
    kept = max(before)
    assert policy.restore(before - {kept}) == []
    assert set(policy.residents()) == before - {kept}
    assert len(policy) == len(before) - 1
    gone = policy.resize(1)
    assert len(policy) == 1
    assert set(gone) | set(policy.residents()) == before - {kept}
    assert kept[1] in policy.request(kept[0], [kept[1]]).misses


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_there_after_an_interrupt_is_what_is_kept(name: str) -> None:
    """Experts that a request had displaced may still be there, and those it admitted may not."""
    policy = make_policy(name, 4, LAYERS, EXPERTS)
    for layer in LAYERS:
        policy.request(layer, [1, 2])
    there = {(3, 1), (4, 5), (7, 2), (7, 9)}
    assert policy.restore(there) == []
    assert set(policy.residents()) == there
    assert policy.request(4, [5]).hits == [5]
    (gone,) = policy.restore(there | {(3, 8)})
    assert set(policy.residents()) == (there | {(3, 8)}) - {gone}
    assert len(policy) == 4


def test_ids_must_ascend() -> None:
    policy = make_policy(DEFAULT, 4, LAYERS, EXPERTS)
    for wrong in ([2, 1], [1, 1]):
        with pytest.raises(ValueError, match="layer 4: expert ids must be strictly ascending"):
            policy.request(4, wrong)


@settings(max_examples=100)
@given(asked=requests, capacity=st.integers(6, 20))
def test_lru_is_lru(asked: list[list[int]], capacity: int) -> None:
    """Against an ordered dictionary. The experts of one request are touched hits first, because none of them may go."""
    policy = make_policy("lru", capacity, LAYERS, EXPERTS)
    order: OrderedDict[Key, None] = OrderedDict()
    for turn, ids in enumerate(asked):
        layer = LAYERS[turn % len(LAYERS)]
        keys = [(layer, i) for i in ids]
        assert policy.request(layer, ids).hits == [i for i in ids if (layer, i) in order]
        for key in [key for key in keys if key in order] + [key for key in keys if key not in order]:
            order[key] = None
            order.move_to_end(key)
        while len(order) > capacity:
            order.popitem(last=False)
        order_of_use = [key for key in order if key not in keys] + keys  # within a request, later ids are the more recent
        order = OrderedDict.fromkeys(order_of_use)
        assert set(policy.residents()) == set(order)


@settings(max_examples=60)
@given(asked=st.lists(st.integers(0, EXPERTS - 1), min_size=1, max_size=80))
def test_lru_one_at_a_time_is_the_curve(asked: list[int]) -> None:
    curve = lru_curve(np.array(asked))
    for capacity in range(len(curve)):
        policy = make_policy("lru", capacity, (0,), EXPERTS)
        assert sum(len(policy.request(0, [expert]).hits) for expert in asked) == curve[capacity]


def test_lfu_keeps_what_is_used_often_and_forgets_slowly() -> None:
    policy = make_policy("lfu", 2, (0,), EXPERTS)
    for _ in range(5):
        policy.request(0, [1, 2])
    for other in range(3, 12):
        assert policy.request(0, [other]).admitted == {}, "one use does not displace five"
    for _ in range(4):
        policy.request(0, [3])
    assert (0, 3) in policy, "the old uses have faded below the new ones"


def test_layered_keeps_deep_layers() -> None:
    policy = make_policy("layered", 40, range(1, 93), 896)
    for token in range(3):
        for layer in range(1, 93):
            policy.request(layer, range(token, token + 16))
    assert {layer for layer, _ in policy.residents()} == {91, 92}
    assert len(policy.request(92, range(3, 19)).hits) == 15


# --- the default -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Trace:
    """The released model's trace: its twelve positions, as twelve one-token passes."""
    trace = read_trace(shared_data / "k3-expert-trace.bin").unrolled()
    assert [len(one) for one in trace.passes] == [92] * 12
    assert trace.tokens == 12
    assert len(trace.keys) == 12 * 1472
    return trace


def test_the_default_beats_lru_below_one_tokens_set(released: Trace) -> None:
    curve = lru_curve(released.keys)
    for gigabytes in range(1, 26):
        capacity = gigabytes * GB // EXPERT_BYTES
        assert hits(DEFAULT, released, capacity) > curve[capacity], f"{gigabytes} GB"
    assert hits("lru", released, 25 * GB // EXPERT_BYTES) == 0, "our own LRU must not be better than the textbook's there"


@pytest.mark.parametrize("gigabytes", [16, 24, 32])
def test_the_default_reaches_a_good_part_of_the_optimum(released: Trace, gigabytes: int) -> None:
    capacity = gigabytes * GB // EXPERT_BYTES
    assert hits(DEFAULT, released, capacity) >= 0.45 * belady(released.keys, capacity)


def test_the_default_does_not_decay_where_lru_works(released: Trace) -> None:
    for gigabytes in (32, 48, 64):
        capacity = gigabytes * GB // EXPERT_BYTES
        assert hits(DEFAULT, released, capacity) >= 0.97 * hits("lru", released, capacity)


@pytest.fixture(scope="module")
def synthetic() -> dict[str, Trace]:
    made: dict[str, Trace] = compare_policies.traces(80, layers=8)
    return made


@pytest.mark.parametrize("share", [0.3, 1.25])
def test_the_default_is_not_made_for_one_trace(synthetic: dict[str, Trace], share: float) -> None:
    """It must come close to the best of the others on traces where only frequency, only recency, or both tell the future."""
    for name, trace in synthetic.items():
        capacity = int(share * 16 * 8)
        best = max(hits(policy, trace, capacity) for policy in POLICIES if policy != DEFAULT)
        assert hits(DEFAULT, trace, capacity) >= 0.88 * best, name


def test_the_default_is_better_than_all_others_on_a_drifting_router(synthetic: dict[str, Trace]) -> None:
    for name in ("router", "router, strong topics", "router, abrupt topics"):
        for share in (0.62, 2.5):
            capacity = int(share * 16 * 8)
            best = max(hits(policy, synthetic[name], capacity) for policy in POLICIES if policy != DEFAULT)
            assert hits(DEFAULT, synthetic[name], capacity) > best, (name, share)


def test_the_default_learns_which_layers_repeat_themselves() -> None:
    """Layer 4 always asks for the same experts, layer 3 for others every time: the slots go to layer 4."""
    policy = make_policy(DEFAULT, 8, (3, 4), 64)
    for token in range(12):
        policy.request(3, range(token * 5, token * 5 + 4))
        policy.request(4, range(20, 28))
    assert {layer for layer, _ in policy.residents()} == {4}
    assert policy.request(4, range(20, 28)).misses == []


def test_a_pass_of_many_tokens_counts_how_many_chose_an_expert() -> None:
    """After a prompt of 100 tokens in one pass the experts of most of its tokens stay."""
    policy = make_policy(DEFAULT, 3, (0,), 64)
    uses = [90 if expert in (7, 30, 51) else 2 for expert in range(64)]
    policy.request(0, range(64), uses, 100)
    assert policy.residents() == [(0, 7), (0, 30), (0, 51)]


def test_one_pass_of_many_tokens_is_like_many_passes() -> None:
    at_once, one_by_one = (Forecast(2, (0,), 8) for _ in range(2))
    at_once.request(0, [1, 6], [50, 50], 50)
    for _ in range(50):
        one_by_one.request(0, [1, 6])
    assert np.allclose(at_once._seen, one_by_one._seen)
    assert np.allclose(at_once._used, one_by_one._used)


def test_the_forecast_is_a_rate() -> None:
    """An expert that every token uses comes to be expected with certainty, one that none uses not at all."""
    policy: Policy = Forecast(2, (0,), 8)
    for _ in range(200):
        policy.request(0, [1, 6])
    score = policy._score[0]
    assert np.allclose(score[[1, 6]], 1, atol=0.05)
    assert np.all(score[[0, 2, 3, 4, 5, 7]] == 0)
