"""`bench kernels` at the shapes of a tiny model: what is counted, compared and refused. Digests are asserted, times are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from demands import config_of

from lilliput import _core
from lilliput.bench.kernels import contest, experts, group, kv_b, rivals, state, trunk
from lilliput.bench.kernels import measure as kernels
from lilliput.bench.kernels.contest import Contest, Key, Results, Sample, Work
from lilliput.bench.kernels.measure import KERNELS, Kernels, measure_kernels
from lilliput.bench.kernels.rivals import Rivals
from lilliput.bench.kernels.targets import target_of
from lilliput.cli import bench_kernels as verb
from lilliput.cli.main import run
from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.memory import Free

TINY = config_of("tiny")
SIZE = 300_000
WIDE = [isa for isa in _core.isas() if isa != "scalar"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens and short peaks: the scalar kernels run too."""
    monkeypatch.setattr(trunk, "TOKENS", (1, 4, 20))
    monkeypatch.setattr(experts, "TOKENS", (1, 20))
    monkeypatch.setattr(group, "PEAK_SECONDS", 1e-4)
    monkeypatch.setattr(group, "BLOCK", 1 << 14)
    monkeypatch.setattr("lilliput.bench.kernels.contest.PATIENCE", 0.0)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Rivals:
    """Neither numpy nor torch is compared with."""

    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(rivals, "import_module", absent)
    return Rivals()


def measure(**given: Any) -> Kernels:
    return measure_kernels(TINY, **({"size": SIZE, "isas": _core.isas(), "threads": (1, 2), "repeats": 2} | given))


def test_every_kernel_is_measured_with_every_setting_and_agrees(alone: Rivals) -> None:
    steps: list[tuple[int, int]] = []
    found = measure(rivals=alone, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i + 1, 18) for i in range(18)]
    report = found.as_dict()
    settings = {(isa, threads) for isa in _core.isas() for threads in (1, 2)}
    tokens = {"bf16": {1, 4, 20}, "k12": {1, 4, 20}, "mxfp4": {1, 20}, "transposed": {1, 4}, "transposed-k12": {1, 4}}
    for kernel in KERNELS:
        rows = [row for row in report["kernels"] if row["kernel"] == kernel]
        assert {row["tokens"] for row in rows} == tokens.get(kernel, {1})
        for n in {row["tokens"] for row in rows}:
            assert {(row["isa"], row["threads"]) for row in rows if row["tokens"] == n} == settings
        assert all(0 < row["seconds"]["lowest"] <= row["seconds"]["median"] <= row["seconds"]["highest"] for row in rows)
    assert report["digests_agree"]
    assert found.verdict() is None
    rows_of_trunk = [row for row in report["digests"] if row["outputs"] == "rows"]
    assert [row["tokens"] for row in rows_of_trunk] == [1, 4, 20]
    for row in rows_of_trunk:  # in place and packed, on every setting, are the same outputs
        assert len(row["digests"]) == 2 * len(settings)
        assert len({made["digest"] for made in row["digests"]}) == 1
    assert len(report["decode"]) == len(settings)
    json.dumps(report)


def test_every_kernel_has_the_ratios_that_it_is_judged_by(alone: Rivals) -> None:
    found = measure(rivals=alone, threads=(1,), repeats=1)
    ratios = {(key.name, key.tokens): set(found.ratios(key)) for key in found.cases()}
    for kernel in ("bf16", "k12", "mxfp4"):
        assert ratios[kernel, 1] == {"read", "read stored", "peak", "doubles"}
        assert ratios[kernel, 20] == {"read", "read stored", "peak", "one token"}
    assert ratios["kda", 1] == {"copy"}
    assert ratios["attention", 1] == {"peak"}
    assert ratios["transposed", 4] == {"read", "read stored", "peak", "one token"}
    assert ratios["router", 1] == set()


def test_numpy_and_torch_are_compared_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a torch of a few lines that multiplies in float32."""
    limits: list[int] = []

    class Tensor:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        @property
        def shape(self) -> tuple[int, ...]:
            return self.values.shape

        def view(self, *how: Any) -> Tensor:
            return Tensor(self.values.view(np.uint16) if how == ("bf16",) else self.values.reshape(how))

        def to(self, _: str) -> Tensor:
            return self

        def __getitem__(self, rows: slice) -> Tensor:
            return Tensor(self.values[rows])

    def linear(x: Tensor, w: Tensor) -> None:
        assert w.values.dtype == np.uint16
        shapes.append((x.shape, w.shape))

    shapes: list[tuple[tuple[int, ...], ...]] = []
    torch = SimpleNamespace(
        __version__="0",
        bfloat16="bf16",
        from_numpy=Tensor,
        set_num_threads=lambda n: limits.append(n),
        inference_mode=nullcontext,
        nn=SimpleNamespace(functional=SimpleNamespace(linear=linear)),
    )

    class Controller:
        @contextmanager
        def limit(self, *, limits: int, user_api: str) -> Any:
            yield

    fakes = {"torch": torch, "threadpoolctl": SimpleNamespace(ThreadpoolController=Controller)}
    monkeypatch.setattr(rivals, "import_module", lambda name: fakes[name])
    found = measure(kernels=["bf16", "mxfp4", "transposed", "attention"], isas=_core.isas()[-1:])
    report = found.as_dict()
    assert report["versions"]["torch"] == "0"
    assert set(limits) == {1, 2}
    for row in report["kernels"]:
        expected = {"bf16": {"numpy", "torch"}, "mxfp4": {"numpy", "torch"}}.get(row["kernel"], {"numpy"})
        assert set(row["ratios"]) & {"numpy", "torch"} == expected
    assert {(x[0], x[1]) for x, _ in shapes} == {(n, TINY.hidden_size) for n in (1, 4, 20)} | {(n, 64) for n in (1, 20)}
    samples = [s for key, by_round in found.results.samples.items() if key.name == "numpy" for s in by_round.values()]
    assert all(sample.work.products > 0 for sample in samples)


def test_few_tokens_go_over_all_weights_and_many_over_the_next_part() -> None:
    assert list(group.Cycle(5, 8).take()) == [0, 1, 2, 3, 4]
    turns = group.Cycle(5, 20)
    assert [list(turns.take()) for _ in range(3)] == [[0, 1], [2, 3], [4, 0]]
    assert turns.first() == range(2)
    made = trunk.Trunk(TINY, SIZE, ("bf16", "k12"), Rivals())
    try:
        weights = sum(p.rows * p.columns for p in made._pieces)
        assert sum(p.k12.size for p in made._pieces) >= SIZE
        runs = {(c.name, c.tokens): c for c in made.contenders}
        for kind, stored in (("bf16", 2.0), ("k12", 1.5)):
            for tokens in (1, 4):
                assert runs[kind, tokens].run() == Work(weights * tokens, 2.0 * weights, stored * weights)
            assert runs[kind, 20].run().products < weights * 20
        assert runs["read", 0].run().nbytes == runs["doubles", 0].run().nbytes == 2 * weights
    finally:
        made.close()


def test_the_pieces_are_those_of_the_tape() -> None:
    made = trunk.Trunk(TINY, 10_000, ("bf16",), Rivals())
    shapes = {t.shape[1] for t in trunk.trunk_matrices(TINY)}
    assert {p.columns for p in made._pieces} <= shapes
    assert all(t.name.split(".")[2] != "0" for t in trunk.trunk_matrices(TINY))  # the dense layer has no part
    made.close()


def broken(monkeypatch: pytest.MonkeyPatch, kernel: str, when: Callable[[], bool]) -> None:
    """The kernel's first output comes out wrong where `when` says so."""
    honest = getattr(_core, kernel)

    def wrong(y: Any, *arguments: Any) -> Any:
        done = honest(y, *arguments)
        if when():
            y.reshape(-1).view(np.uint32)[0] ^= 1
        return done

    monkeypatch.setattr(_core, kernel, wrong)


@pytest.mark.parametrize(
    ("kernels", "function"),
    [
        ("k12", "matmul"),
        ("mxfp4", "experts"),
        ("transposed", "absorb_query"),
        ("kda", "kda"),
        ("attention", "attend"),
        ("norms", "rms_norm"),
    ],
)
def test_a_bit_that_differs_on_one_instruction_set_is_an_error(
    kernels: str, function: str, monkeypatch: pytest.MonkeyPatch, alone: Rivals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(monkeypatch, function, lambda: _core.isa() == "scalar")
    monkeypatch.setattr(verb, "k3", lambda: TINY)
    file = tmp_path / "k.json"
    arguments = ["bench", "kernels", "--kernels", kernels, "--size", "300KB", "--isa", ",".join(_core.isas()), "-t", "1", "--repeats", "1"]
    assert run([*arguments, "--json", str(file), "-q"]) == 1
    printed = capsys.readouterr()
    assert "which they must never do" in printed.err
    assert "caches of this machine hold the weights" not in printed.err  # -q
    assert f"{kernels} with 1 token ({WIDE[0]}, 1 thread) differs from {kernels} with 1 token (scalar, 1 thread)" in printed.err
    assert "DIFFER" in printed.out
    assert json.loads(file.read_bytes())["digests_agree"] is False


def test_weights_that_caches_hold_are_told(monkeypatch: pytest.MonkeyPatch, alone: Rivals, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verb, "k3", lambda: TINY)
    for caches, told in ((400_000, True), (200_000, False)):
        monkeypatch.setattr(verb, "beyond_caches", lambda n=caches: n)
        assert run(["bench", "kernels", "--kernels", "norms", "--size", "300KB", "-t", "1", "--repeats", "1"]) == 0
        assert ("caches of this machine hold the weights" in capsys.readouterr().err) == told


def test_what_follows_a_rival_waits_until_its_threads_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of our own: another thread takes a whole processor for 0.13 seconds."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    fake = SimpleNamespace(perf_counter=lambda: clock.now, process_time=lambda: min(clock.now, 0.13), sleep=sleep)
    monkeypatch.setattr(contest, "time", fake)
    contest.rest()
    assert clock.now == 0.0  # no patience in these tests
    monkeypatch.setattr(contest, "PATIENCE", 2.0)
    contest.rest()
    assert 0.13 < clock.now < 0.13 + 2 * contest.LOOK
    fake.process_time = lambda: clock.now
    contest.rest()
    assert 2.0 < clock.now < 2.3  # one that never rests


def test_packed_rows_that_differ_from_rows_in_place_are_an_error(monkeypatch: pytest.MonkeyPatch, alone: Rivals) -> None:
    kinds: dict[int, str] = {}
    rows, product = _core.Rows, _core.matmul

    def made(kind: str, *how: Any) -> Any:
        w = rows(kind, *how)
        kinds[id(w)] = kind
        return w

    def matmul(y: Any, x: Any, w: Any, row: int) -> None:
        product(y, x, w, row)
        if kinds[id(w)] == "k12":
            y.reshape(-1).view(np.uint32)[0] ^= 1

    monkeypatch.setattr(_core, "Rows", made)
    monkeypatch.setattr(_core, "matmul", matmul)
    found = measure(kernels=["bf16", "k12"], isas=_core.isas()[-1:], threads=(1,), repeats=1, rivals=alone)
    assert found.verdict() is not None
    assert "k12 with 20 tokens" in str(found.verdict())


def test_a_bit_that_differs_with_two_threads_is_an_error(monkeypatch: pytest.MonkeyPatch, alone: Rivals) -> None:
    broken(monkeypatch, "attend", lambda: _core.threads() == 2)
    found = measure(kernels=["attention"], isas=_core.isas()[-1:], repeats=1, rivals=alone)
    assert "2 threads) differs from" in str(found.verdict())


def test_an_interrupt_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, alone: Rivals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _core.isa(), _core.threads()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_core, "attend", interrupted)
    monkeypatch.setattr(verb, "k3", lambda: TINY)
    file = tmp_path / "k.json"
    arguments = ["bench", "kernels", "--kernels", "kda,attention,norms", "--size", "300KB", "--isa", _core.isas()[0], "-t", "1"]
    assert run([*arguments, "--repeats", "1", "--json", str(file)]) == 130
    report = json.loads(file.read_bytes())
    assert report["interrupted"] is True
    assert [row["kernel"] for row in report["kernels"]] == ["kda"]
    assert "interrupted: what was measured before is kept" in capsys.readouterr().err
    assert (_core.isa(), _core.threads()) == before


def test_instruction_set_and_threads_come_back(alone: Rivals) -> None:
    before = _core.isa(), _core.threads()
    measure(kernels=["router"], threads=(before[1] + 1,), isas=("scalar",), rivals=alone, repeats=1)
    assert (_core.isa(), _core.threads()) == before


def test_what_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch, alone: Rivals) -> None:
    monkeypatch.setattr(kernels, "tightest", lambda: Free("a test", 2_000_000_000))
    monkeypatch.setattr(_core, "Arena", lambda *_: pytest.fail("memory was taken"))
    with pytest.raises(
        DoesNotFitError, match=r"--size 1GB: measuring bf16, k12 takes 3\.\d+GB .* 2GB are free \(a test\).*short by 1\.\d+GB"
    ) as refused:
        measure(size=1_000_000_000, kernels=KERNELS[:2], rivals=alone)
    advised = str(refused.value).rpartition("--size ")[2]
    assert kernels.Trunk.needs(TINY, int(advised.removesuffix("MB")) * 10**6) + group.OVERHEAD < 1_800_000_000
    monkeypatch.setattr(kernels, "tightest", lambda: Free("a test", 1000))
    with pytest.raises(DoesNotFitError, match="end what uses the memory"):
        measure(rivals=alone)


def test_what_is_said_to_be_needed_is_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas, which are all of it but activations."""
    taken: list[int] = []
    honest = group.Memory.take
    monkeypatch.setattr(group.Memory, "take", lambda self, n: taken.append(n) or honest(self, n))  # type: ignore[func-returns-value]
    for builder in (trunk.Trunk, experts.Experts, kv_b.KvB, state.Recurrence, state.Attention):
        taken.clear()
        builder(TINY, 3_000_000, builder.kernels, Rivals()).close()
        assert 0 < sum(taken) <= builder.needs(TINY, 3_000_000)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"kernels": ["bf16", "nothing"]}, "--kernels: needed some of .*, found nothing"),
        ({"kernels": []}, "--kernels: needed some of .*, found none"),
        ({"isas": ["sse9"]}, "--isa: needed some of .*, found sse9"),
        ({"threads": [0]}, "--threads: needed 1 to 1024, found 0"),
        ({"repeats": 0}, "--repeats: needed at least 1, found 0"),
        ({"size": 1}, "--size: needed at least 100KB, because less holds nothing to measure, found 1B"),
        ({"size": 99_999}, "--size: needed at least 100KB"),
    ],
)
def test_names_and_numbers_that_mean_nothing_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        measure(**given)


def test_the_smallest_size_measures_everything(alone: Rivals) -> None:
    found = measure(size=100_001, threads=(1,), isas=_core.isas()[:1], repeats=1)
    assert {key.name for key in found.cases()} == set(KERNELS)


def test_the_variable_chooses_the_instruction_set_as_the_option_does(monkeypatch: pytest.MonkeyPatch, alone: Rivals) -> None:
    monkeypatch.setenv("LILLIPUT_ISA", "bogus")
    with pytest.raises(UsageError, match=r"LILLIPUT_ISA: needed one of .*, found bogus"):
        measure(isas=())
    monkeypatch.setenv("LILLIPUT_ISA", "scalar")
    assert {key.isa for key in measure(isas=(), threads=(1,), repeats=1, kernels=["bf16"]).cases()} == {"scalar"}
    assert {key.isa for key in measure(isas=_core.isas()[-1:], threads=(1,), repeats=1, kernels=["bf16"]).cases()} == {_core.isas()[-1]}


@pytest.mark.parametrize("threads", ["0", "one", "1,,x", ","])
def test_threads_that_are_no_numbers_are_refused(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "kernels", "-t", threads]) == 2
    assert "--threads: needed whole numbers above zero, separated by commas" in capsys.readouterr().err


def sampled(rates: dict[tuple[str, int], list[float]], isa: str | None = "avx2", group: str = "trunk") -> Results:
    """Results with the given multiply-adds and bytes per second, one number per round."""
    results = Results()
    for (name, tokens), values in rates.items():
        own = None if name in ("read", "doubles", "numpy", "copy") else isa
        key = Key(group, name, tokens, own, 1)
        stored = 1.0 if name == "read" else 0.75
        results.samples[key] = {n: Sample(2.0, Work(2 * rate, 2 * rate, 2 * rate * stored)) for n, rate in enumerate(values)}
    return results


def with_results(results: Results) -> Kernels:
    return Kernels(TINY, 1, 1, Contest(("avx2",), (1,), Rivals(), results))


def test_a_ratio_is_the_median_over_rounds_of_rates_of_the_same_round() -> None:
    found = with_results(sampled({("k12", 1): [6.0, 8.0, 30.0], ("read", 0): [10.0, 10.0, 60.0], ("doubles", 0): [2.0, 2.0, 2.0]}))
    ratios = found.ratios(Key("trunk", "k12", 1, "avx2", 1))
    assert (ratios["read"].median, ratios["read"].lowest, ratios["read"].highest) == (0.6, 0.5, 0.8)
    assert ratios["read stored"].median == pytest.approx(0.45)
    assert ratios["doubles"].median == 4.0


def test_a_round_that_was_cut_short_is_compared_with_nothing() -> None:
    found = with_results(sampled({("k12", 1): [6.0, 8.0], ("read", 0): [10.0]}))
    assert found.ratios(Key("trunk", "k12", 1, "avx2", 1))["read"].highest == 0.6


def test_tokens_cost_what_their_pass_takes_beside_one_tokens_pass() -> None:
    found = with_results(sampled({("k12", 1): [10.0], ("k12", 4): [25.0]}))  # four times the work, in 1.6 times the time
    assert found.ratios(Key("trunk", "k12", 4, "avx2", 1))["one token"].median == pytest.approx(1.6)


def test_targets_apply_where_they_are_stated() -> None:
    def bound(*where: Any) -> str:
        return str(target_of(*where))

    assert bound("k12", "read", 1, "avx2", 1, 2) == "at least 0.7"
    assert bound("k12", "read", 1, "avx512", 2, 2) == "at least 0.75"
    assert bound("k12", "one token", 4, "avx512", 2, 2) == "at most 1.6"
    assert bound("bf16", "one token", 4, "avx512", 2, 2) == "at most 1.15"
    assert bound("mxfp4", "doubles", 1, "avx512", 1, 1) == "at least 18"
    assert bound("mxfp4", "peak", 512, "avx2", 2, 2) == "at least 0.5"
    for nowhere in (
        ("k12", "read", 1, "neon", 1, 2),
        ("k12", "read", 1, "scalar", 1, 2),
        ("k12", "read", 4, "avx2", 1, 2),
        ("k12", "one token", 4, "avx2", 2, 2),
        ("k12", "one token", 4, "avx512", 1, 1),
        ("mxfp4", "peak", 16, "avx2", 2, 2),
    ):
        assert target_of(*nowhere) is None
    target = target_of("k12", "one token", 4, "avx512", 2, 2)
    assert target is not None
    assert target.met(1.6)
    assert not target.met(1.61)
    target = target_of("kda", "copy", 1, "avx2", 1, 2)
    assert target is not None
    assert target.met(0.8)
    assert not target.met(0.79)


def test_the_share_of_the_small_ones_by_hand() -> None:
    """The tape at 10^6 weights per second, experts at 2 * 10^6, states at 8 * 10^6 bytes; six small kernels of two seconds each."""
    results = Results()
    for among, name, rate in (("trunk", "k12", 1e6), ("experts", "mxfp4", 2e6), ("recurrence", "kda", 8e6)):
        results.samples[Key(among, name, 1, "avx2", 1)] = {0: Sample(1.0, Work(rate, rate, rate))}
    for name in ("norms", "mixing", "convolution", "router", "situ", "gates"):
        results.samples[Key("other", name, 1, "avx2", 1)] = {0: Sample(2.0, Work())}
    (row,) = with_results(results).shares()
    tape = sum(t.parameters for t in kernels.layout(TINY).tape())
    routed = 8 * 2 * 3 * 64 * 64  # layers with experts, experts per token, three matrices
    states = 2 * 4 * sum(TINY.is_kda) * 2 * 128 * 128
    expected = tape / 1e6 + routed / 2e6 + states / 8e6
    assert row["share"] == pytest.approx(12.0 / (12.0 + expected))
    assert row["met"] is False
    del results.samples[Key("experts", "mxfp4", 1, "avx2", 1)]
    assert with_results(results).shares() == []


def test_what_is_left_out_is_said(alone: Rivals) -> None:
    assert not alone.numpy
    assert alone.torch is None
    assert any("numpy is left out" in why and "threadpoolctl" in why for why in alone.missing)
    assert any("torch bf16 is left out" in why for why in alone.missing)


def test_the_verb(monkeypatch: pytest.MonkeyPatch, alone: Rivals, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verb, "k3", lambda: TINY)
    arguments = ["bench", "kernels", "--size", "300KB", "-t", "1", "--repeats", "1"]
    assert run([*arguments, "-q"]) == 0
    shown = capsys.readouterr().out
    for word in (
        "of read",
        "of peak",
        "x doubles",
        "x 1 token",
        "at least 0.7",
        "a decode pass without attention",
        "runs agree",
        "bf16, k12, 1 token: ",  # not what the outputs are called inside
        "numpy is left out",
    ):
        assert word in shown
    assert run([*arguments, "--kernels", "router, norms", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["command"] == "bench kernels"
    assert report["isas"] == WIDE
    assert [row["kernel"] for row in report["kernels"]] == ["norms"] * len(WIDE) + ["router"] * len(WIDE)
    assert report["machine"]["cpus"]


@pytest.mark.parametrize(("threads", "seconds", "granted"), [(1, 2.0, 0.75), (2, 4.0, 0.375)])
def test_one_thread_is_timed_by_itself_and_several_by_the_clock(
    threads: int, seconds: float, granted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {"perf_counter": [10.0, 14.0], "process_time": [1.0, 4.0], "thread_time": [5.0, 7.0]}
    monkeypatch.setattr(contest, "time", SimpleNamespace(**{name: iter(times).__next__ for name, times in clocks.items()}))
    assert contest.timed(lambda: Work(8.0), threads) == Sample(seconds, Work(8.0), granted)


def test_a_busy_machine_is_said_to_be(monkeypatch: pytest.MonkeyPatch, alone: Rivals, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verb, "k3", lambda: TINY)
    honest = contest.timed
    for granted, busy in ((0.5, True), (0.99, False)):
        monkeypatch.setattr(contest, "timed", lambda run, threads, share=granted: replace(honest(run, threads), granted=share))
        assert run(["bench", "kernels", "--kernels", "attention", "--size", "300KB", "-t", "2", "--repeats", "1", "-q"]) == 0
        assert ("the machine was busy: 2 threads got 50 %" in capsys.readouterr().out) is busy
