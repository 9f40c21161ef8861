"""The thread pool: any size, from several Python threads at once, after a fork, and asleep when there is nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import contract_dot as plain
import numpy as np
import pytest
from contract import F, Floats, same_bits

from lilliput import _core

LINUX = sys.platform.startswith("linux")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = _core.threads()
    yield
    _core.set_threads(before)


def run(program: str) -> str:
    """Output of a program in a process of its own, which must end well."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Product:
    """A product that is worth splitting, and what it must give."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.w, self.x = plain.bf16(rng.normal(size=(90, 256)).astype(F)).reshape(-1), rng.normal(size=(3, 256)).astype(F)
        self.expected = plain.dot(plain.from_bf16(self.w, 90, 256), self.x)

    def run(self) -> Floats:
        y = np.empty((3, 90), F)
        _core.matmul_bf16(y, self.x, self.w, 90, 0)
        return y


def test_the_size_is_what_was_set() -> None:
    for n in (1, 2, 5):
        _core.set_threads(n, 0)
        assert _core.threads() == n


def test_the_size_does_not_show_and_may_change_at_any_time() -> None:
    product = Product()
    for n in (1, 2, 3, 8, 2, 40, 1, 4):  # also more threads than tasks
        _core.set_threads(n, 0)
        same_bits(product.run(), product.expected, f"{n} threads")


def test_nobody_waits_awake_while_a_reader_is_at_work(tmp_path: Path) -> None:
    """Two hundred products one after the other, without and with a read that is under way all the time."""
    file = tmp_path / "f"
    file.write_bytes(bytes(8192))
    product = Product()

    def waits() -> int:
        before = _core.waits_awake()
        for _ in range(200):
            product.run()
            time.sleep(0)  # whoever waits does so for a while
        return _core.waits_awake() - before

    faults = _core.FaultPlan()
    reader = _core.Reader(threads=1, faults=faults)
    number, memory = reader.add(file, 8192), _core.Arena(8192)
    _core.set_threads(4, 0)
    while waits() == 0:  # on a busy machine no worker may get a core all that time; one that never waits awake would hang here
        pass
    faults.hold()
    ticket = reader.submit(number, 0, 4096, memory.address, False)
    faults.await_calls(1)
    waits()  # whoever had begun before
    assert waits() == 0
    faults.release()
    reader.wait(ticket)
    while waits() == 0:
        pass
    reader.close()


@pytest.mark.skipif(not LINUX, reason="counts threads in /proc")
def test_workers_are_the_callers_helpers() -> None:
    program = """
    import os
    import numpy as np
    from lilliput import _core
    count = lambda: len(os.listdir("/proc/self/task"))
    start = count()
    w, x, y = np.zeros(4096, np.uint8), np.zeros((1, 64), np.float32), np.zeros((1, 32), np.float32)
    # One thread needs no pool and leaves a pool that is there asleep.
    for n, workers in ((1, 0), (3, 2), (2, 1), (5, 4), (1, 4), (2, 1)):
        _core.set_threads(n, 0)
        _core.matmul_bf16(y, x, w, 32, 0)
        while count() - start > workers:  # the system lists a thread that was joined for a moment more; one too many would hang here
            os.sched_yield()
        print(count() - start == workers)
    """
    assert run(program) == 6 * "True\n"


def test_callers_take_turns() -> None:
    """Python threads that compute at once: the GIL is released, the results are each caller's own."""
    products = [Product(seed) for seed in range(4)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for round_ in range(60):
            if i == 0 and round_ % 10 == 0:
                _core.set_threads(2 + round_ // 10 % 3, 0)
            if products[i].run().tobytes() != products[i].expected.tobytes():
                wrong.append(i)

    _core.set_threads(3, 0)
    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes() -> None:
    """The child has none of its parent's workers: it starts its own instead of waiting for them."""
    product = Product()
    _core.set_threads(3, 0)
    same_bits(product.run(), product.expected)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            good = product.run().tobytes() == product.expected.tobytes()
            os.write(write, b"good" if good else b"different")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        assert answer.read() == b"good"
    os.waitpid(child, 0)
    same_bits(product.run(), product.expected)  # the parent's pool is untouched


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_computes() -> None:
    program = """
    import os, sys, threading
    import numpy as np
    from lilliput import _core
    w, x = np.zeros(2 * 512 * 512, np.uint8), np.zeros((4, 512), np.float32)

    def run():
        _core.matmul_bf16(np.zeros((4, 512), np.float32), x, w, 512, 0)

    _core.set_threads(3, 0)
    done = False

    def busy():
        while not done:
            run()

    other = threading.Thread(target=busy)
    other.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            run()
            os._exit(0)
        os.waitpid(child, 0)
    done = True
    other.join()
    print("done")
    """
    assert run(program) == "done\n"


@pytest.mark.skipif(not LINUX, reason="reads thread states in /proc")
def test_idle_workers_sleep() -> None:
    """Every thread but this one ends up in interruptible sleep, and then uses no processor time at all."""
    program = """
    import os
    from pathlib import Path
    import numpy as np
    from lilliput import _core
    w, x, y = np.zeros(4096, np.uint8), np.zeros((1, 64), np.float32), np.zeros((1, 32), np.float32)
    not_ours = set(os.listdir("/proc/self/task"))
    _core.set_threads(4, 0)
    _core.matmul_bf16(y, x, w, 32, 0)

    def workers():
        for task in sorted(Path("/proc/self/task").iterdir()):
            if task.name not in not_ours:
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                yield task.name, fields[0], int(fields[11]) + int(fields[12]), (task / "status").read_text()

    def switches(status):
        return [line for line in status.splitlines() if "ctxt_switches" in line]

    while any(state != "S" for _, state, _, _ in workers()):
        os.sched_yield()
    before = [(name, ticks, switches(status)) for name, _, ticks, status in workers()]
    for _ in range(2000):
        os.sched_yield()
        sum(range(2000))
    after = [(name, ticks, switches(status)) for name, _, ticks, status in workers()]
    assert before == after and len(before) == 3, (before, after)
    print("asleep")
    """
    assert run(program) == "asleep\n"


@pytest.mark.skipif(not LINUX, reason="reads signal masks in /proc")
def test_workers_leave_signals_to_the_main_thread() -> None:
    program = """
    import os
    from pathlib import Path
    import numpy as np
    from lilliput import _core
    w, x, y = np.zeros(4096, np.uint8), np.zeros((1, 64), np.float32), np.zeros((1, 32), np.float32)
    before = set(os.listdir("/proc/self/task"))
    _core.set_threads(3, 0)
    _core.matmul_bf16(y, x, w, 32, 0)

    def blocked(task):
        status = Path(f"/proc/self/task/{task}/status").read_text()
        return int(status.split("SigBlk:")[1].split()[0], 16)

    for task in set(os.listdir("/proc/self/task")) - before:
        print(bool(blocked(task) & 1 << 1), bool(blocked(task) & 1 << 14))
    print(bool(blocked(os.getpid()) & 1 << 1))
    """
    out = run(program)
    assert out.splitlines() == ["True True", "True True", "False"]


@pytest.mark.skipif(not LINUX, reason="limits threads through setrlimit")
def test_threads_that_cannot_be_had_are_refused_when_they_are_asked_for() -> None:
    """With the number and what helps, as what does not fit; the former number stays in force, and a smaller one can be had."""
    program = """
    import os, resource
    import numpy as np
    from lilliput import _bench, _core
    from lilliput.errors import DoesNotFitError
    count = lambda: len(os.listdir("/proc/self/task"))
    w, x, y = np.zeros(4096, np.uint8), np.zeros((1, 64), np.float32), np.zeros((1, 32), np.float32)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    _core.set_threads(2, 0)
    before = count()
    used = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20, hard))
    for ask in (lambda: _core.set_threads(600), lambda: _bench.set_threads(600), lambda: _core.Reader(threads=256)):
        try:
            ask()
        except DoesNotFitError as error:
            print(*str(error).split()[:4], "--threads" in str(error), "ulimit -u" in str(error))
    print(_core.threads(), count() < before + 3)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    _core.matmul_bf16(y, x, w, 32, 0)
    _core.set_threads(3, 0)
    _core.matmul_bf16(y, x, w, 32, 0)
    print("recovered")
    """
    refused = ["computing: needed 600 threads,", "computing: needed 600 threads,", "reading: needed 256 threads,"]
    assert run(program).splitlines() == [f"{start} True True" for start in refused] + ["2 True", "recovered"]
