"""The default number of threads against made-up machines: affinity, both control group versions, hyperthreads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lilliput.machine.cgroups import limiting_directories
from lilliput.machine.threads import default_threads

V2 = "25 21 0:22 {mounted} {where} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "30 21 0:27 {mounted} {where} rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"


class Machine:
    """A root directory with `cores` cores of `ways` hyperthreads each."""

    def __init__(self, root: Path, cores: int = 8, ways: int = 1) -> None:
        self.root = root
        for cpu in range(cores * ways):
            siblings = ",".join(str(cpu % cores + cores * way) for way in range(ways))
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings + "\n")
        self.cpus = range(cores * ways)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v2(self, path: str, mounted: str = "/", where: str = "/sys/fs/cgroup", **cpu_max: str) -> None:
        self.write("proc/self/mountinfo", V2.format(mounted=mounted, where=where.replace(" ", "\\040")))
        self.write("proc/self/cgroup", f"0::{path}\n")
        for directory, text in cpu_max.items():
            self.write(f"{where}/{directory.replace('__', '/')}/cpu.max".replace("/top/", "/"), text + "\n")

    def v1(self, path: str, mounted: str, quotas: dict[str, tuple[int, int]]) -> None:
        where = "/sys/fs/cgroup/cpu,cpuacct"
        self.write("proc/self/mountinfo", V1.format(mounted=mounted, where=where))
        self.write("proc/self/cgroup", f"12:memory:/elsewhere\n4:cpu,cpuacct:{path}\n0::/unified\n")
        for directory, (quota, period) in quotas.items():
            self.write(f"{where}{directory}/cpu.cfs_quota_us", f"{quota}\n")
            self.write(f"{where}{directory}/cpu.cfs_period_us", f"{period}\n")

    def threads(self, cpus: range | set[int] | None = None) -> int:
        return default_threads(self.root, self.cpus if cpus is None else cpus)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_plain_machine_uses_its_cores(machine: Machine) -> None:
    assert machine.threads() == 8


def test_hyperthreads_do_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=4, ways=2)
    assert machine.threads() == 4
    assert machine.threads({0, 4}) == 1  # both hyperthreads of core 0
    assert machine.threads({0, 1, 4}) == 2


def test_affinity_limits(machine: Machine) -> None:
    assert machine.threads({1, 5, 6}) == 3


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("350000 100000", 3),
        ("50000 100000", 1),
        ("1600000 100000", 8),
        ("100000 50000", 2),
        ("", 8),
        ("x y", 8),
    ],
)
def test_version_2_quota_rounds_down_but_not_to_zero(machine: Machine, text: str, threads: int) -> None:
    machine.v2("/job", job=text)
    assert machine.threads() == threads


def test_every_ancestor_counts(machine: Machine) -> None:
    machine.v2("/user/session/job", user="600000 100000", user__session="300000 100000", user__session__job="max 100000")
    assert machine.threads() == 3
    machine.v2("/user/session/job", user="200000 100000")
    assert machine.threads() == 2


def test_a_container_sees_its_group_as_the_root(machine: Machine) -> None:
    machine.v2("/", top="200000 100000")
    assert machine.threads() == 2


def test_a_container_whose_path_is_the_hosts(machine: Machine) -> None:
    machine.v2("/docker/abc", mounted="/docker/abc", top="200000 100000")
    assert machine.threads() == 2
    machine.v2("/docker/abc/inner", mounted="/docker/abc", inner="100000 100000")
    assert machine.threads() == 1


def test_a_path_outside_the_mount_falls_back_to_the_mount(machine: Machine) -> None:
    machine.v2("/../../other", mounted="/docker/abc", top="500000 100000")
    assert machine.threads() == 5
    machine.v2("/docker/abcdef", mounted="/docker/abc")  # a longer name is not a child
    assert limiting_directories("cpu", machine.root) == [machine.root / "sys/fs/cgroup"]


def test_mount_points_with_blanks(machine: Machine) -> None:
    machine.v2("/job", where="/sys/fs/control groups", job="300000 100000")
    assert machine.threads() == 3


def test_version_1(machine: Machine) -> None:
    machine.v1("/docker/abc", "/docker/abc", {"": (250000, 100000)})
    assert machine.threads() == 2
    machine.v1("/a/b", "/", {"/a/b": (-1, 100000), "/a": (500000, 100000), "": (-1, 100000)})
    assert machine.threads() == 5


def test_version_1_ignores_other_controllers(machine: Machine) -> None:
    machine.v1("/a", "/", {"/elsewhere": (100000, 100000)})
    assert machine.threads() == 8


def test_without_topology_it_still_answers(tmp_path: Path) -> None:
    assert 1 <= default_threads(tmp_path, {0, 1, 2}) <= 3


def test_this_machine() -> None:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert 1 <= default_threads() <= (available or 1)
