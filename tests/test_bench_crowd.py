"""A busy core: it works only when it is let, and every pass is played once with and once without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from lilliput.bench import prefill
from lilliput.bench.crowd import BusyCore, in_proportion
from lilliput.bench.prefill import measure_prefill
from lilliput.cli.main import run
from lilliput.engine.engine import Engine
from lilliput.engine.source import Source
from lilliput.errors import LilliputError
from lilliput.machine.plan import Budget


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tie a process to a processor")
def test_works_only_when_it_is_let() -> None:
    with BusyCore() as busy:
        pid = busy._process.pid
        assert os.sched_getaffinity(pid) == {min(os.sched_getaffinity(0))}
        process = psutil.Process(pid)
        spent = process.cpu_times().user
        with busy.working():
            while process.cpu_times().user <= spent:  # a loop that never gets on would hang here
                pass
        while process.status() != psutil.STATUS_SLEEPING:  # one that worked on would hang here
            pass
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tie a process to a processor")
def test_one_that_died_is_named() -> None:
    with BusyCore() as busy:
        with busy.working():
            busy._process.kill()
            busy._process.wait()
        with pytest.raises(LilliputError, match="--busy-core: the process that keeps a processor busy has ended"), busy.working():
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tie a process to a processor")
def test_ends_with_the_process_that_measures() -> None:
    program = """if True:
        import os
        from lilliput.bench.crowd import BusyCore
        busy = BusyCore()
        busy._process.stdin.write(b".")
        print(busy._process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    with suppress(psutil.NoSuchProcess):  # whoever collects orphans may do so between any two looks
        loop = psutil.Process(int(done.stdout))
        while loop.is_running() and loop.status() != psutil.STATUS_ZOMBIE:  # one that goes on would hang here
            pass


class Busy:
    """Counts which passes are played inside `working`."""

    def __init__(self) -> None:
        self.now = False

    @contextmanager
    def working(self) -> Iterator[None]:
        self.now = True
        yield
        self.now = False


def test_every_pass_is_played_with_and_without_it(tiny_synth: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "PEAK_SECONDS", 1e-4)
    busy, played = Busy(), list[tuple[int, bool]]()
    honest = prefill._play
    monkeypatch.setattr(prefill, "_play", lambda engine, state, ids: (played.append((len(ids), busy.now)), honest(engine, state, ids)))
    with Engine(Source(tiny_synth), budget=Budget(900_000_000), context=64, prompt=1, threads=1) as engine:
        report = measure_prefill(engine, [1, 8], repeats=2, busy=busy).as_dict()  # type: ignore[arg-type]
    assert [played.count((n, crowded)) for n in (1, 8) for crowded in (False, True)] == [4, 2, 3, 2]  # one pass of all sizes comes first
    for row in report["passes"]:
        assert 0 < row["busy_core"]["lowest"] <= row["busy_core"]["median"] <= row["busy_core"]["highest"]


def test_in_proportion() -> None:
    assert in_proportion(2) == pytest.approx(4 / 3)
    assert in_proportion(1) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tie a process to a processor")
def test_from_the_command_line(tiny_synth: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(prefill, "PEAK_SECONDS", 1e-4)
    assert run(["bench", "prefill", str(tiny_synth), "--tokens", "1,4", "--repeats", "1", "--busy-core", "--memory", "900MB"]) == 0
    assert "beside a busy core" in capsys.readouterr().out
