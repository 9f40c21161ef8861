"""However a run ends, what is complete is saved, each output whatever became of the others; and every run can be ended."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lilliput
from lilliput.cli.ending import ending
from lilliput.cli.main import run
from lilliput.cli.signals import Terminated
from lilliput.engine.engine import Engine
from lilliput.engine.session import Session
from lilliput.errors import ContentError, LilliputError
from lilliput.machine import interrupts
from lilliput.model import state_file
from lilliput.trace import read_trace

TINY_A = str(Path(__file__).parent / "oracle" / "tiny-a")
PROMPT = [1, 2, 3]
GENERATE = ["generate", TINY_A, "--ids", "1,2,3", "-n", "9", "-q"]
OUTPUTS = ["--session", "s", "--logits", "l.npy", "--json", "j", "--trace-experts", "t"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def straight() -> list[int]:
    """What the prompt leads to."""
    with lilliput.open(TINY_A) as engine:
        return [token.id for token in engine.generate(PROMPT, max_tokens=12)]


def fail_after(monkeypatch: pytest.MonkeyPatch, tokens: int, error: Callable[[], BaseException]) -> None:
    """As a shard that is gone when the pass behind so many tokens wants to read it."""
    honest, calls = Session.next_logits, list[int]()

    def next_logits(self: Session, more: bool) -> Any:
        calls.append(1)
        if len(calls) > tokens:
            raise error()
        return honest(self, more)

    monkeypatch.setattr(Session, "next_logits", next_logits)


# Kind → what it is made of, exit code. Made anew each time: an error that is kept keeps the engine in whose frames it was raised.
ENDS: dict[type[BaseException], tuple[tuple[Any, ...], int]] = {
    LilliputError: (("a shard is gone",), 1),
    OSError: ((errno.EIO, "bad", "shard"), 1),
    MemoryError: ((), 3),
    KeyboardInterrupt: ((), 130),
}


@pytest.mark.parametrize("kind", ENDS)
def test_an_error_in_mid_run_costs_no_more_than_its_pass(
    kind: type[BaseException], place: Path, straight: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_of, expected = ENDS[kind]
    with monkeypatch.context() as patch:
        fail_after(patch, 4, lambda: kind(*made_of))
        code = run([*GENERATE, *OUTPUTS])
    out, err = capsys.readouterr()
    assert code == expected
    assert ("a shard is gone" in err) == (kind is LilliputError)
    assert out == ",".join(map(str, straight[:4])) + "\n"
    assert json.loads((place / "j").read_bytes())["ids"] == straight[:4]
    assert len(np.load(place / "l.npy")) == 4
    assert read_trace(place / "t").tokens == len(PROMPT) + 3
    assert run(["generate", TINY_A, "--session", "s", "-n", "3", "-q"]) == 0
    assert capsys.readouterr().out == ",".join(map(str, straight[4:7])) + "\n"
    assert sorted(p.name for p in place.iterdir()) == ["j", "l.npy", "s", "t"]


def test_an_error_before_anything_is_complete_leaves_no_output(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after(monkeypatch, 0, lambda: LilliputError("a shard is gone"))
    assert run([*GENERATE, "--session", "s", "--logits", "l.npy", "--json", "j"]) == 1
    assert not list(place.iterdir())


def test_what_is_not_to_be_used_is_not_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(_: Engine) -> None:
        raise ContentError("damaged")

    monkeypatch.setattr(Engine, "check_content", bad)
    assert run([*GENERATE, *OUTPUTS[:-2]]) == 4
    assert not list(place.iterdir())


@pytest.mark.parametrize("lost", ["s", "l.npy", "j", "t"])
def test_an_output_that_cannot_be_saved_costs_no_other(
    lost: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = os.fsync

    def full(handle: int) -> None:
        if any(os.path.samestat(os.fstat(handle), p.stat()) for p in place.glob(f"{lost}.*")):
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(handle)

    monkeypatch.setattr(os, "fsync", full)
    assert run([*GENERATE, *OUTPUTS]) == 3
    assert f"{lost}: could not be written" in capsys.readouterr().err
    assert {p.name for p in place.iterdir()} == {"s", "l.npy", "j", "t"} - {lost}


def test_every_output_that_cannot_be_saved_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run([*GENERATE, *OUTPUTS]) == 3
    err = capsys.readouterr().err
    assert all(f"{place / name}: could not be written" in err for name in OUTPUTS[1::2])
    assert not list(place.iterdir())


def test_a_trace_on_a_full_disk_ends_the_run_and_nothing_else(place: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    assert run([*GENERATE[:-2], "2000", "-q", *OUTPUTS[:-2], "--trace-experts", "/dev/full"]) == 3
    assert sorted(p.name for p in place.iterdir()) == ["j", "l.npy", "s"]


def test_a_trace_that_cannot_be_written_leaves_its_room_to_the_others(tmp_path: Path) -> None:
    if not hasattr(signal, "SIGXFSZ"):
        pytest.skip("no limit for the size of files")
    code = f"""
import resource, signal, numpy
from pathlib import Path
from lilliput.errors import DoesNotFitError
from lilliput.trace import TraceWriter
trace = TraceWriter(Path({str(tmp_path / "t")!r}), top_k=1, expert_bytes=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    while True:
        trace.routed(1, numpy.zeros((1 << 16, 1), numpy.int32))
except DoesNotFitError:
    print(list(Path({str(tmp_path)!r}).iterdir()))
trace.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert not list(tmp_path.iterdir())


def test_a_signal_between_two_steps_leaves_none_out() -> None:
    taken = []
    with ending() as end:
        end.attempt(lambda: taken.append(1))
        interrupts.deliver(Terminated(signal.SIGTERM))
        end.attempt(lambda: taken.append(2))
    assert taken == [1, 2]
    assert end.exit_code() == 143


@pytest.mark.parametrize("whole", [False, True])
def test_a_signal_in_a_step_breaks_off_that_one_unless_it_is_to_be_whole(whole: bool) -> None:
    taken = []

    def step() -> None:
        interrupts.deliver(KeyboardInterrupt())
        taken.append(1)

    with ending() as end:
        end.attempt(step, whole=whole)
        end.attempt(lambda: taken.append(2))
    assert taken == ([1, 2] if whole else [2])
    assert end.exit_code() == 130


def test_the_session_is_saved_whole_when_a_signal_comes_meanwhile(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = state_file.save

    def save(*arguments: Any, **options: Any) -> None:
        interrupts.deliver(KeyboardInterrupt())
        honest(*arguments, **options)

    monkeypatch.setattr(state_file, "save", save)
    assert run([*GENERATE, *OUTPUTS]) == 130
    assert sorted(p.name for p in place.iterdir()) == ["j", "l.npy", "s", "t"]


def test_between_two_passes_an_interrupt_waits_for_nothing() -> None:
    """Who takes the logits may take his time: a pipe, for one, that nobody reads."""
    with lilliput.open(TINY_A) as engine:
        for _ in engine.logits(PROMPT):
            with pytest.raises(KeyboardInterrupt):
                interrupts.deliver(KeyboardInterrupt())


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Starts the real program, or Python code, and ends it in any case. SIGHUP is as in a terminal, however the tests were started."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, code: str = "from lilliput.__main__ import main; main()") -> subprocess.Popen[bytes]:
        before = (
            "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGINT, signal.default_int_handler)"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", f"{before}\n{code}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_every_signal_that_ends_us_saves_first(number: int, code: int, start: Any, tmp_path: Path, straight: list[int]) -> None:
    process = start("generate", TINY_A, "--ids", "1,2,3", "-n", "1000000", "--session", "s", "--json", "j")
    first = process.stdout.read(1)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == code
    assert b"Traceback" not in err
    ids = json.loads((tmp_path / "j").read_bytes())["ids"]
    assert ids[:12] == straight[: len(ids)]
    with lilliput.open(TINY_A) as engine:
        assert Session.load(engine, tmp_path / "s").ids[: 3 + len(ids)] == PROMPT + ids
    assert (first + out).decode() == ",".join(map(str, ids)) + "\n"


CATCH = """
import os, signal
from lilliput.cli import signals
signals.catch_signals()
"""
WAIT = """
def wait(word):
    try:
        print(word, flush=True)
        return sys.stdin.readline()
    except BaseException as end:
        return repr(end)
"""


def test_where_hanging_up_is_ignored_it_stays_ignored(start: Any) -> None:
    process = start(code=f"signal.signal(signal.SIGHUP, signal.SIG_IGN){CATCH}print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)")
    assert process.communicate()[0] == b"True\n"


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(first: int, second: int, start: Any) -> None:
    process = start(code=f"{CATCH}{WAIT}signals.SAME = 0.0\nwait('one')\nwait('two')\nwait('three')")
    assert said(process) == "one\n"
    process.send_signal(first)
    assert said(process) == "two\n"
    process.send_signal(second)
    process.communicate()
    assert process.returncode == -second


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_what_sends_a_signal_twice_does_not_disturb_the_saving(second: int, start: Any) -> None:
    """`timeout` sends SIGTERM to its child and to the child's group; shell and kernel both tell that a terminal has gone."""
    process = start(code=f"{CATCH}{WAIT}signals.SAME = 1e9\nwait('one')\nprint(wait('two'), flush=True)")
    assert said(process) == "one\n"
    process.send_signal(second)
    assert said(process) == "two\n"
    process.send_signal(second)
    assert process.communicate(b"saved\n")[0] == b"saved\n\n"
    assert process.returncode == 0


IMPATIENT = "from lilliput.cli import signals; signals.SAME = 0.0; from lilliput.__main__ import main; main()"


@pytest.mark.parametrize("waits", ["-o", "--trace-experts", "--json"])
def test_a_pipe_that_nobody_reads_keeps_no_run_from_ending(waits: str, start: Any, tmp_path: Path, straight: list[int]) -> None:
    os.mkfifo(tmp_path / "p")
    pipe = os.open(tmp_path / "p", os.O_RDWR)
    try:
        if waits == "-o":
            process = start("logits", TINY_A, "--ids", ",".join(["1"] * 600), "--all", "-o", "p")
        else:
            tokens = "300" if waits == "--json" else "100000"
            process = start("generate", TINY_A, "--ids", "1,2,3", "-n", tokens, "--session", "s", waits, "p", code=IMPATIENT)
        while select.select([], [pipe], [], 0)[1] and process.poll() is None:  # it still takes something
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        if waits == "--trace-experts":  # what is complete may still have to go into the pipe
            while not (tmp_path / "s").exists() and process.poll() is None:
                os.sched_yield()
            process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
        assert process.returncode in (143, -signal.SIGTERM)
        assert b"Traceback" not in err
    finally:
        os.close(pipe)
    if waits != "-o":
        with lilliput.open(TINY_A) as engine:
            ids = Session.load(engine, tmp_path / "s").ids
        assert len(ids) > 3
        assert ids[3:15] == straight[: len(ids) - 3]
