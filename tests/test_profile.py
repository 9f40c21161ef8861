"""The core's profile: every operation is counted where it belongs, and nothing is while it is off. Counts are asserted, times are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lilliput import _core

F32 = np.float32


@pytest.fixture(autouse=True)
def _plain() -> Iterator[None]:
    threads = _core.threads()
    yield
    _core.profile_stop()
    _core.set_threads(threads)


def used(work: Callable[[], object]) -> dict[str, int]:
    """Calls by kind, of kinds that were used."""
    _core.profile_start()
    work()
    found = _core.profile_stop()
    assert all(seconds >= 0 and (calls > 0 or seconds == 0) for calls, seconds in found.values())
    return {kind: calls for kind, (calls, _) in found.items() if calls}


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, F32)


def everything() -> list[tuple[str, Callable[[], object]]]:
    bf16 = np.zeros(4 * 128 * 2, np.uint8)
    packed = _core.k12_encode(bf16, 4, 128, np.zeros(16, np.uint8))
    nibbles, scales = np.zeros(32 * 16, np.uint8), np.zeros(32, np.uint8)
    parts = [nibbles, scales] * 3
    row, weight = np.zeros(1, np.int32), ones(1)
    kv_b = np.zeros(2 * (4 + 4) * 32 * 2, np.uint8)
    blocks = np.zeros((1, 128, 40), F32)
    address = np.array([blocks.ctypes.data], np.int64)
    conv = (ones(1, 16), ones(1, 16), ones(16, 3), ones(16, 4))
    kda = (None, ones(1, 8, 8), ones(1, 8, 8), *(ones(1, 1, 8) for _ in range(4)), ones(1, 1))
    ids, weights = np.zeros((1, 2), np.int32), ones(1, 2)
    return [
        ("f32", lambda: _core.matmul_f32(ones(1, 4), ones(1, 128), ones(4, 128))),
        ("bf16", lambda: _core.matmul_bf16(ones(1, 4), ones(1, 128), bf16, 4)),
        ("k12", lambda: _core.matmul_k12(ones(1, 4), ones(1, 128), packed, 4)),
        ("experts", lambda: _core.mxfp4_matmul(ones(1, 32), ones(1, 32), nibbles, scales)),
        ("experts", lambda: _core.experts(ones(1, 32), ones(1, 32), [(row, weight, _core.Expert(parts, 32, 32))], 4.0, None)),
        ("experts", lambda: _core.accumulate(ones(1, 32), ones(1, 32), row, weight)),
        ("kv_b", lambda: _core.absorb_query(ones(1, 2, 40), ones(1, 2, 12), kv_b, "bf16", 4, 4)),
        ("kv_b", lambda: _core.absorb_value(ones(1, 2, 4), ones(1, 2, 32), kv_b, "bf16", 4, 4)),
        ("attention", lambda: _core.attend(ones(1, 2, 32), ones(1, 2, 40), address, 0, 1.0)),
        ("kda", lambda: _core.kda(*kda)),
        ("convolution", lambda: _core.short_conv(*conv)),
        ("convolution", lambda: _core.conv_tail(ones(16, 3), ones(16, 3), ones(1, 16), 1)),
        ("norms", lambda: _core.rms_norm(ones(1, 8), ones(1, 8), ones(8), 1e-5)),
        ("norms", lambda: _core.l2_heads(ones(1, 8), ones(1, 8), 2, 1e-6, None)),
        ("norms", lambda: _core.gated_norm(ones(1, 8), ones(1, 8), ones(8), ones(1, 8), 1e-5)),
        ("mixing", lambda: _core.mix(ones(1, 8), [ones(1, 8)], ones(8), 1e-5)),
        ("elementwise", lambda: _core.situ(ones(1, 8), ones(1, 8), ones(1, 8), 4.0, 25.0)),
        ("elementwise", lambda: _core.gate(ones(8), ones(8))),
        ("elementwise", lambda: _core.add(ones(8), ones(8))),
        ("elementwise", lambda: _core.finish(ones(8))),
        ("elementwise", lambda: _core.kda_decay(ones(1, 1, 8), ones(1, 1, 8), ones(1), ones(8), -5.0)),
        ("router", lambda: _core.route(ids, weights, ones(1, 4), ones(4), 2, True, 1.0)),
        ("choice", lambda: _core.log_softmax(ones(1, 4), ones(1, 4))),
        ("choice", lambda: _core.nonfinite(ones(1, 4))),
    ]


@pytest.mark.parametrize(("kind", "work"), everything())
def test_an_operation_is_counted_once_and_where_it_belongs(kind: str, work: Callable[[], object]) -> None:
    assert used(work) == {kind: 1}


@pytest.mark.parametrize(
    "work",
    [
        lambda: _core.argmax_rows(np.zeros(1, np.int64), ones(1, 4)),
        lambda: _core.sample(ones(4), 1.0, 0, 1.0, 0.0, 1, 0, 0),
    ],
)
def test_a_choice_is_counted_with_the_check_before_it(work: Callable[[], object]) -> None:
    assert used(work) == {"choice": 2}


def test_nothing_is_counted_while_it_is_off() -> None:
    work = everything()[1][1]
    _core.profile_start()
    _core.profile_stop()
    work()
    assert not any(calls for calls, _ in _core.profile_stop().values())


def test_starting_again_forgets() -> None:
    work = everything()[1][1]

    def twice() -> None:
        work()
        _core.profile_start()
        work()

    assert used(twice) == {"bf16": 1}


def test_forks_and_joins_are_counted_where_threads_share() -> None:
    def work() -> None:
        _core.matmul_f32(ones(1, 64), ones(1, 128), ones(64, 128))

    _core.set_threads(2, 0)
    found = used(work)
    assert found == {"f32": 1, "forks": 1, "joins": 1}
    _core.set_threads(1, 0)
    assert used(work) == {"f32": 1}
