"""Threads of a job: all there before it begins or refused, and never half started or half waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_pack import SMALL, source_of

from lilliput.cli.signals import catch_signals
from lilliput.errors import DoesNotFitError
from lilliput.machine.workers import Workers, result_of
from lilliput.weights.pack import pack

LIMITED = """
import resource, sys
import lilliput.cli.generate, lilliput.cli.pack, lilliput.cli.plan
from lilliput.cli.main import run
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20, resource.getrlimit(resource.RLIMIT_AS)[1]))
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def handlers() -> Iterator[None]:
    """The command line's, while the test runs."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def test_results_and_errors_come_back() -> None:
    with Workers(3, "testing") as workers:
        futures = [workers.submit(pow, base, 2) for base in range(20)]
        bad = workers.submit(divmod, 1, 0)
        assert [result_of(future) for future in futures] == [base**2 for base in range(20)]
        with pytest.raises(ZeroDivisionError):
            result_of(bad)


def test_all_threads_are_there_from_the_start() -> None:
    before = threading.active_count()
    with Workers(5, "testing"):
        assert threading.active_count() == before + 5
    assert threading.active_count() == before


def test_threads_that_cannot_be_had_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before, left, start = threading.active_count(), [3], threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with pytest.raises(DoesNotFitError, match=r"^testing: needed 5 threads, and only 3 could be had .*--threads.*ulimit -u"):
        Workers(5, "testing")
    assert threading.active_count() == before  # none is left that would sleep for nothing


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits threads through setrlimit")
@pytest.mark.parametrize(
    ("verb", "options", "what"),
    [
        ("generate", ["--ids", "1", "-n", "2", "--memory", "300MB"], "computing: needed 600 threads"),
        ("plan", ["--memory", "300MB"], "computing: needed 600 threads"),
        ("pack", ["-o"], "encoding: needed 600 threads"),
    ],
)
def test_a_verb_ends_with_the_number_and_what_to_do(tiny_synth: Path, tmp_path: Path, verb: str, options: list[str], what: str) -> None:
    options = [*options, str(tmp_path / "packed")] if verb == "pack" else options
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), verb, str(tiny_synth), "-t", "600", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"lilliput: {what}, and only ")
    assert "`--threads`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("owner", "step"),
    [(threading.Thread, "start"), (threading.Condition, "wait"), (threading.Thread, "join")],
    ids=["start", "wait", "join"],
)
def test_an_interrupt_finds_no_thread_half_started_or_waited_for(
    tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers: None, owner: Any, step: str
) -> None:
    """Ctrl-C in the middle of Python's own bookkeeping: it arrives, but after it."""
    plain: Callable[..., Any] = getattr(owner, step)
    torn: list[BaseException] = []
    sent = []

    def interrupted(self: Any, *arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is threading.main_thread() and not sent:
            sent.append(step)
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException as error:
                torn.append(error)
                raise
        return plain(self, *arguments, **named)

    catch_signals()
    monkeypatch.setattr(owner, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        pack(source_of(tiny_synth), tmp_path / "packed", threads=2, piece_bytes=SMALL)
    assert sent
    assert not torn
