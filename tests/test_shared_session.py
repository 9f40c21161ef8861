"""One session, several threads: what a thread gets is whole, at whatever moment the others come.

Nothing waits for a clock: a thread that has started another goes on when the other is through, or stands waiting for the session.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import lilliput
from lilliput.engine.engine import Engine
from lilliput.engine.session import Session
from lilliput.errors import LilliputError, UsageError
from lilliput.model import state, state_file

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
IDS = [21, 173, 248]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with lilliput.open(TINY_A, threads=1) as engine:
        yield engine


class Meeting:
    """A session's turn that tells when somebody has to wait for it; and one other thread that wants it."""

    def __init__(self, session: Session) -> None:
        self._turn, self._decided, self._result = threading.RLock(), threading.Event(), []
        self._thread: threading.Thread | None = None
        session._turn = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        if not self._turn.acquire(blocking=False):
            self._decided.set()
            self._turn.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._turn.release()

    def start(self, work: Callable[[], Any]) -> None:
        """Begin `work` on the other thread; returns when it is done, or waits."""

        def run() -> None:
            try:
                self._result.append(work())
            except BaseException as error:  # shown by the test
                self._result.append(error)
            finally:
                self._decided.set()

        if self._thread is None:
            self._thread = threading.Thread(target=run)
            self._thread.start()
            self._decided.wait()

    def result(self) -> Any:
        assert self._thread is not None, "the moment never came"
        self._thread.join()
        (result,) = self._result
        if isinstance(result, BaseException):
            raise result
        return result


def after(monkeypatch: pytest.MonkeyPatch, where: object, name: str, action: Callable[[], None], at: int = 1) -> None:
    """Call `action` when `where.name` returns for the `at`-th time."""
    real, calls = getattr(where, name), []

    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        calls.append(1)
        if len(calls) == at:
            action()
        return result

    monkeypatch.setattr(where, name, wrapped)


@pytest.fixture
def session(engine: Engine) -> Session:
    session = engine.session()
    session.append(IDS)
    session.logits()
    session.append([5])
    return session


def ids_and_logits(session: Session) -> tuple[list[int], bytes]:
    session.append([9])  # what is known already says nothing about the state
    return list(session.ids), session.logits().tobytes()


@pytest.fixture
def expected(engine: Engine) -> tuple[list[int], bytes]:
    session = engine.session()
    session.append([*IDS, 5])
    return ids_and_logits(session)


@pytest.mark.parametrize("how", ["save", "copy"])
def test_a_pass_of_another_thread_is_saved_and_copied_whole(
    how: str, session: Session, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come while its third layer takes in what is new."""
    meeting = Meeting(session)
    work = session.copy if how == "copy" else lambda: session.save(tmp_path / "s")
    after(monkeypatch, state, "tails_after", lambda: meeting.start(work), at=3)
    session.logits()
    other = meeting.result()
    assert ids_and_logits(Session.load(session.engine, tmp_path / "s") if how == "save" else other) == expected


def test_a_pass_waits_for_the_file(session: Session, expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(session)
    after(monkeypatch, state_file, "checksum", lambda: meeting.start(session.logits))
    session.save(tmp_path / "s")
    meeting.result()
    monkeypatch.undo()
    assert ids_and_logits(Session.load(session.engine, tmp_path / "s")) == expected


def test_a_pass_waits_for_the_copy(session: Session, expected: object, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(session)
    after(monkeypatch, state.KdaState, "copy", lambda: meeting.start(session.logits))
    other = session.copy()
    meeting.result()
    assert ids_and_logits(other) == expected


def test_ids_that_come_during_a_pass_are_those_after_it(session: Session, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(session)
    after(monkeypatch, state, "tails_after", lambda: meeting.start(lambda: session.append([7])))
    session.logits()
    meeting.result()
    straight = engine.session()
    straight.append([*IDS, 5, 7])
    assert session.ids == straight.ids
    assert session.logits().tobytes() == straight.logits().tobytes()


def test_two_generators_continue_one_session_together(session: Session, engine: Engine) -> None:
    straight = [token.id for token in engine.generate(session.copy(), max_tokens=4)]
    meeting = Meeting(session)
    other = engine.generate(session, max_tokens=2)
    mine = engine.generate(session, max_tokens=2, on_logits=lambda _: meeting.start(lambda: list(other)))
    list(mine)
    meeting.result()
    assert session.ids == [*IDS, 5, *straight]


def test_a_generator_that_waits_for_its_reader_keeps_nobody_out(session: Session, engine: Engine, tmp_path: Path) -> None:
    waiting = engine.generate(session, max_tokens=3)
    first = next(waiting)
    meeting = Meeting(session)
    meeting.start(lambda: session.save(tmp_path / "s"))
    meeting.result()
    assert Session.load(engine, tmp_path / "s").ids == [*IDS, 5, first.id]


def test_many_threads_and_two_sessions_come_to_an_end(engine: Engine, tmp_path: Path) -> None:
    """Saving, copying and running in every order: whoever has the model's turn asks for no session's."""
    sessions, failed = [engine.session() for _ in range(2)], []

    def use(number: int) -> None:
        try:
            for n in range(4):
                mine, its = sessions[(number + n) % 2], sessions[number % 2]
                list(engine.generate(mine, max_tokens=1))
                its.save(tmp_path / str(number))
                Session.load(engine, tmp_path / str(number)).logits()
                its.copy().logits()
        except BaseException as error:
            failed.append(error)

    for session in sessions:
        session.append(IDS)
    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    straight = engine.session()
    straight.append(IDS)
    tokens = [token.id for token in engine.generate(straight, max_tokens=max(len(s.ids) for s in sessions) - 3)]
    assert [s.ids for s in sessions] == [[*IDS, *tokens[: len(s.ids) - 3]] for s in sessions]


class OfAThreadThatIsGone:
    """A turn that nobody gives back any more; here whoever waits for it is told."""

    def __enter__(self) -> None:
        raise AssertionError("this would have waited for ever")

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_refused_instead_of_waiting_for_a_thread_that_is_not_there(session: Session, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
        child = os.fork()
    if child == 0:
        refused = 0
        try:
            session._turn = OfAThreadThatIsGone()  # type: ignore[assignment]
            for use in (session.logits, session.copy, lambda: session.save(tmp_path / "s"), lambda: session.append([1])):
                with pytest.raises(UsageError, match="after the fork"):
                    use()
                refused += 1
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4


def test_what_could_not_be_loaded_is_not_saved(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own handler of Ctrl-C may come between a commit and the note of its logits."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    after(monkeypatch, state.Change, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.logits()
    with pytest.raises(LilliputError, match="lost in an interrupt: append another id"):
        session.save(tmp_path / "s")
    assert not list(tmp_path.iterdir())
