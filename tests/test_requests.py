"""What Python code can ask of an engine by mistake: ids that are none, closed and foreign engines, threads at the same time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lilliput
from lilliput import _core
from lilliput.cli import plan as plan_module
from lilliput.cli.main import run
from lilliput.engine import engine as engine_module
from lilliput.engine.engine import Engine
from lilliput.engine.session import Session
from lilliput.engine.stopping import StopText
from lilliput.errors import DoesNotFitError, TokenizerError, UsageError
from lilliput.machine.costs import ASSUMED

ORACLES = Path(__file__).parent / "oracle"
TINY_A = ORACLES / "tiny-a"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return lilliput.open(TINY_A)


def ids_of(engine: Engine, prompt: Any, **options: Any) -> list[int]:
    return [token.id for token in engine.generate(prompt, **{"max_tokens": 3} | options)]


@pytest.mark.parametrize("prompt", [(1, 2, 3), range(1, 4), np.array([1, 2, 3]), np.array([1, 2, 3], np.uint8), iter([1, 2, 3])])
def test_any_row_of_whole_numbers_is_a_prompt(engine: Engine, prompt: Any) -> None:
    assert ids_of(engine, prompt) == ids_of(engine, [1, 2, 3])


@pytest.mark.parametrize("prompt", [[1.5], [True], ["a"], [None], None, 5, b"abc", np.array([1.0]), np.array([[1, 2]]), [float("nan")]])
def test_anything_else_is_refused_and_nothing_is_rounded(engine: Engine, prompt: Any) -> None:
    with pytest.raises(UsageError, match="token id"):
        engine.generate(prompt)
    with pytest.raises(UsageError, match="token id"):
        engine.logits(prompt)
    with pytest.raises(UsageError, match="token id"):
        engine.session().append(prompt)


def test_logits_of_nothing_are_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="prompt is empty"):
        engine.logits([])


@pytest.mark.parametrize(
    ("option", "value"),
    [(o, v) for o in ("threads", "layers", "max_tokens") for v in (0, True, 1.0, "2", float("nan"))]
    + [("threads", 2**64), ("threads", 2000)],
)
def test_counts_are_whole_numbers_in_range(engine: Engine, option: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')}: needed"):
        engine.generate([1], max_tokens=value) if option == "max_tokens" else lilliput.open(TINY_A, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"memory": value}, "memory: needed") for value in (0, -1, 1.5, True, b"8GB", [1])]
    + [({"isa": value}, "--isa: needed one of") for value in ("", 0, b"avx2")]
    + [({"model": value}, "MODEL: needed a path") for value in (b"tiny", 5, None, "")],
)
def test_other_types_are_refused_when_a_model_is_opened(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        lilliput.open(**{"model": TINY_A, **options})


@pytest.mark.parametrize("stop", [3, b"a", [3], [b"a"], [None], {"a"}, ["a", ""]])
def test_stops_are_texts(stop: Any) -> None:
    with pytest.raises(UsageError, match="--stop: needed a text"):
        StopText(stop)


def test_no_stop_is_none_or_nothing(engine: Engine) -> None:
    for stop in (None, (), []):
        assert len(list(engine.generate([1], max_tokens=2, stop=stop))) == 2
    with pytest.raises(UsageError, match="--stop: needed a text"):
        engine.generate([1], stop=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", [{"temp": 1}, 0.7, "greedy"])
def test_sampling_is_its_own_type(engine: Engine, sampling: Any) -> None:
    with pytest.raises(UsageError, match=r"sampling: needed a lilliput\.Sampling"):
        engine.generate([1], sampling=sampling)


def test_a_closed_engine_says_so(engine: Engine) -> None:
    closed = lilliput.open(TINY_A)
    session, running = closed.session(), closed.generate([1, 2], max_tokens=9)
    session.append([1])
    next(running)
    closed.close()
    closed.close()
    for use in (lambda: next(running), lambda: closed.generate([1]), lambda: closed.logits([1]), session.logits):
        with pytest.raises(UsageError, match="was closed"):
            use()


def test_a_session_of_another_engine_is_refused(engine: Engine) -> None:
    other = lilliput.open(ORACLES / "tiny-b")
    with pytest.raises(UsageError, match="another engine"):
        engine.generate(other.session())


def test_an_engine_that_cannot_be_opened_changes_nothing_for_the_others(tmp_path: Path) -> None:
    lilliput.open(TINY_A, threads=2, isa="scalar")
    (tmp_path / "m").mkdir()
    for file in TINY_A.iterdir():
        (tmp_path / "m" / file.name).symlink_to(file)
    (tmp_path / "m" / "tiktoken.model").write_text("bad")
    with pytest.raises(TokenizerError):
        lilliput.open(tmp_path / "m", threads=1, isa=_core.isas()[-1])
    assert (_core.threads(), _core.isa()) == (2, "scalar")


def in_four_threads(work: Callable[[], object]) -> list[object]:
    """What each of them returned or raised."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_take_turns() -> None:
    engine = lilliput.open(TINY_A)
    straight = ids_of(engine, [1, 2, 3], max_tokens=12)
    assert in_four_threads(lambda: ids_of(engine, [1, 2, 3], max_tokens=12)) == [straight] * 4


def test_giving_memory_back_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the passes of one thread lies the middle of another's."""
    monkeypatch.setattr(engine_module, "SHARED_BELOW", 0)
    with lilliput.open(TINY_A) as engine:
        straight = ids_of(engine, [1, 2, 3], max_tokens=12)
        wanted = itertools.cycle(range(engine.plan.expert_slots + 1))
        monkeypatch.setattr(engine_module, "step_back", lambda *_: next(wanted))
        assert in_four_threads(lambda: ids_of(engine, [1, 2, 3], max_tokens=12)) == [straight] * 4


def test_closing_waits_for_the_pass_of_another_thread() -> None:
    engine = lilliput.open(TINY_A)
    closing = threading.Thread(target=engine.close)

    def close_now(layer: int, running_sum: object) -> None:
        if not closing.ident:
            closing.start()

    engine.weights.watch.on_layer.append(close_now)
    found = [len(token.text) >= 0 for token in engine.generate([1, 2, 3], max_tokens=1)]
    closing.join()
    assert found == [True]
    with pytest.raises(UsageError, match="was closed"):
        ids_of(engine, [1])


def test_one_stop_may_be_given_as_text(engine: Engine) -> None:
    from lilliput.engine.stopping import StopText

    stop = StopText("ab")
    assert stop.push("xbaab") == "xba"
    assert stop.hit


HUGE = [10**12 + 1, 10**30, 10**5000]  # Python itself refuses to write the last one down


@pytest.mark.parametrize("number", HUGE, ids=["a bit", "much", "unwritable"])
def test_numbers_beyond_what_can_be_planned_are_refused_by_name(engine: Engine, number: int) -> None:
    with pytest.raises(UsageError, match="--context: needed 1 to 1000000000000, found "):
        lilliput.open(TINY_A, context=number)
    with pytest.raises(UsageError, match="--max-tokens: needed 1 to 1000000000, found "):
        engine.generate([1], max_tokens=number)
    with pytest.raises(UsageError, match="memory: needed a size above zero and below 1152 PB, found "):
        lilliput.open(TINY_A, memory=number << 30)
    with pytest.raises(UsageError, match="token id "):
        engine.generate([number])
    with pytest.raises(UsageError, match="--seed: needed"):
        lilliput.Sampling(seed=number * 10**8)


def test_the_largest_numbers_can_be_planned(engine: Engine) -> None:
    with pytest.raises(DoesNotFitError, match=r"is not enough for a context of 1,000,000,000,000 tokens"):
        lilliput.open(TINY_A, memory="1GB", context=10**12)
    lilliput.open(TINY_A, memory=10**18).close()
    assert next(engine.generate([1], max_tokens=10**9)).finish is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["generate", "demo", "--ids", "1", "-n", str(10**30)], f"--max-tokens: needed 1 to 1000000000, found {10**30}"),
        (["plan", "demo", "-c", str(10**30)], f"Invalid value for '-c' / '--context': {10**30} is not in the range"),
        (["plan", "demo", "--batch", str(10**30)], f"Invalid value for '--batch': {10**30} is not in the range"),
        (["plan", "demo", "--memory", "9" * 5000 + "GB"], "--memory: needed a number and a unit"),
        (["bench", "decode", "demo", "-n", str(10**30)], f"-n: needed 1 to 1000000000, found {10**30}"),
        (["bench", "ladder", "demo", "-n", str(10**30)], f"-n: needed 1 to 1000000000, found {10**30}"),
    ],
    ids=["generate", "context", "batch", "memory", "decode", "ladder"],
)
def test_the_command_line_refuses_them_too(arguments: list[str], found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert found in capsys.readouterr().err


def test_the_largest_plan_of_the_command_line_says_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    largest = ["--batch", str(10**9), "-c", str(10**12), "--memory", "1152921TB"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "measure_rates", lambda *_: ASSUMED)
        assert run(["plan", str(TINY_A), *largest]) == 3
    assert "is not enough for 1000000000 sequences of 1,000,000,000,000 tokens" in capsys.readouterr().err


class OfBytes:
    def __fspath__(self) -> bytes:
        return b"place"


NO_PATHS: list[Any] = [None, 5, b"place", OfBytes(), "", "a\0b", "\ud800"]


@pytest.mark.parametrize("path", NO_PATHS, ids=["none", "number", "bytes", "of bytes", "empty", "NUL", "surrogate"])
def test_what_is_no_path_is_refused_by_name(engine: Engine, path: Any) -> None:
    with pytest.raises(UsageError, match="MODEL: needed a path, found "):
        lilliput.open(path)
    for use in (engine.session().save, Session.positions, lambda path: Session.load(engine, path)):
        with pytest.raises(UsageError, match="path: needed a path, found "):
            use(path)


def test_a_home_is_found_wherever_a_path_is_typed(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = engine.session()
    session.append([1, 2])
    session.save("~/s")
    assert (Session.positions("~/s"), Session.load(engine, "~/s").ids) == (2, [1, 2])
    assert (tmp_path / "s").is_file()


@pytest.mark.parametrize("text", [None, 5, b"Once", ["Once"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with lilliput.open("demo", memory="1GB") as speaker, pytest.raises(UsageError, match="text: needed a text, found "):
        speaker.encode(text)


def test_other_arguments_of_another_type_are_refused_by_name(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_logits: needed a function, found 5"):
        engine.generate([1], on_logits=5)  # type: ignore[arg-type]
    engine.session().save(tmp_path / "s")
    for other in (None, tmp_path / "s"):
        with pytest.raises(UsageError, match=r"engine: needed a lilliput\.Engine, found "):
            Session.load(other, tmp_path / "s")  # type: ignore[arg-type]
