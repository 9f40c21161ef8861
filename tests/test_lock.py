"""One engine at a time: who holds the lock is named, and no death leaves it behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.lock import EngineLock, engine_lock

HOLD = """
import sys
from pathlib import Path
from lilliput.machine.lock import engine_lock
with engine_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of tmp_path."""
    command = [sys.executable, "-c", HOLD, str(tmp_path), "it's a prompt"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_holder_is_named(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        engine_lock(tmp_path).acquire()
    message = str(caught.value)
    assert f"process {holder.pid} (`-c {tmp_path} 'it'\"'\"'s a prompt'`), since 2" in message
    assert caught.value.exit_code == 3


def test_the_next_one_gets_it(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.communicate("")
    with engine_lock(tmp_path) as lock:
        assert f'"pid":{os.getpid()}' in lock.path.read_text()


def test_on_a_full_disk_it_is_held_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with engine_lock(tmp_path), pytest.raises(DoesNotFitError, match="a process that has not given its name"):
        engine_lock(tmp_path).acquire()
    engine_lock(tmp_path).acquire().release()


def test_a_killed_holder_leaves_nothing(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lock = engine_lock(tmp_path)
    assert str(holder.pid) in lock.path.read_text(), "the file still says so, and it means nothing"
    with lock:
        assert lock.held
        assert str(holder.pid) not in lock.path.read_text()


def test_what_an_earlier_holder_left_is_overwritten(tmp_path: Path) -> None:
    lock = engine_lock(tmp_path)
    lock.path.write_text("x" * 1000)
    with lock, pytest.raises(DoesNotFitError, match=f"process {os.getpid()} "):
        engine_lock(tmp_path).acquire()


def test_two_in_one_process(tmp_path: Path) -> None:
    with engine_lock(tmp_path), pytest.raises(DoesNotFitError, match=f"process {os.getpid()} "):
        engine_lock(tmp_path).acquire()
    with engine_lock(tmp_path):
        pass


def test_taking_and_giving_twice(tmp_path: Path) -> None:
    lock = engine_lock(tmp_path)
    assert lock.acquire() is lock.acquire()
    lock.release()
    lock.release()
    assert not lock.held
    assert lock.path.read_bytes() == b""


def test_given_back_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), engine_lock(tmp_path):
        raise RuntimeError
    with engine_lock(tmp_path):
        pass


def test_started_programs_do_not_inherit_it(tmp_path: Path) -> None:
    """A child that outlives the engine must not keep others out."""
    with engine_lock(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with engine_lock(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b'{"pid": "x"}'])
def test_a_holder_without_a_name(tmp_path: Path, content: bytes) -> None:
    with engine_lock(tmp_path) as lock:
        lock.path.write_bytes(content)
        with pytest.raises(DoesNotFitError, match="a process that has not given its name yet"):
            engine_lock(tmp_path).acquire()


def test_a_long_command_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/lilliput", "generate", "x" * 100_000])
    with engine_lock(tmp_path), pytest.raises(DoesNotFitError, match=r"\(`lilliput generate x+\.\.\.`\)") as caught:
        engine_lock(tmp_path).acquire()
    assert len(str(caught.value)) < 600


def test_no_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"the lock file cannot be made: .*; set LILLIPUT_CACHE"):
        EngineLock(tmp_path / "file" / "engine.lock").acquire()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    lock = engine_lock(tmp_path)
    os.mkfifo(lock.path)
    with pytest.raises(UsageError, match=r"the lock file cannot be made: something that is no file is there; remove it"):
        lock.acquire()
    assert not lock.held
    lock.path.unlink()
    with lock:
        pass


def test_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LILLIPUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("platform.node", lambda: "a b/c")
    assert engine_lock().path == tmp_path / "cache" / "engine-a_b_c.lock"
