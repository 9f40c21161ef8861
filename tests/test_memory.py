"""What counts as free memory, on made-up machines: both control group versions, unlimited values, nesting, page cache, process limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilliput.errors import UsageError
from lilliput.machine.memory import (
    PRESETS,
    Pressure,
    chosen_budget,
    format_size,
    free_memory,
    memory_pressure,
    parse_size,
    tightest,
)

GB = 10**9
MIB = 1 << 20
NO_LIMIT_V1 = 9223372036854771712

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max data size             {data:<20} unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max address space         {space:<20} unlimited            bytes
"""
PSI = "some avg10={some} avg60=0.00 avg300=0.00 total=123\nfull avg10={full} avg60=0.00 avg300=0.00 total=45\n"


class Machine:
    """A root directory with 64 GB of which 40,000 MiB are available."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write(
            "proc/meminfo", f"MemTotal:       62500000 kB\nMemFree:  1000000 kB\nMemAvailable:   {40_000 * 1024} kB\nHugePages_Total: 0\n"
        )

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def v2(self, path: str, **groups: dict[str, object]) -> None:
        """cgroup2 on /sys/fs/cgroup; a group's name has __ for /, `top` is the mount itself."""
        self.write("proc/self/mountinfo", "25 21 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
        self.write("proc/self/cgroup", f"0::{path}\n")
        self.groups("sys/fs/cgroup", groups)

    def v1(self, path: str, **groups: dict[str, object]) -> None:
        self.write("proc/self/mountinfo", "30 21 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
        self.write("proc/self/cgroup", f"9:memory:{path}\n4:cpu,cpuacct:/elsewhere\n0::/\n")
        self.groups("sys/fs/cgroup/memory", groups)

    def groups(self, where: str, groups: dict[str, dict[str, object]]) -> None:
        for name, files in groups.items():
            directory = where if name == "top" else f"{where}/{name.replace('__', '/')}"
            for file, content in files.items():
                self.write(f"{directory}/{file.replace('__', '.')}", f"{content}\n")

    @property
    def free(self) -> int:
        return tightest(self.root).nbytes


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_plain_machine(machine: Machine) -> None:
    assert machine.free == 40_000 * MIB
    assert tightest(machine.root).name == "MemAvailable"


def test_an_old_kernel_without_memavailable(machine: Machine) -> None:
    machine.write("proc/meminfo", "MemTotal: 2000 kB\nMemFree: 1000 kB\n")
    assert machine.free == 1000 * 1024


def test_this_machine() -> None:
    assert 0 < tightest().nbytes < 1 << 50


def test_another_system(tmp_path: Path) -> None:
    """Without /proc there is what psutil says."""
    assert [free.name for free in free_memory(tmp_path)] == ["available memory"]
    assert tightest(tmp_path).nbytes > 0
    assert memory_pressure(tmp_path) is None


def test_v2_limit_less_what_is_used(machine: Machine) -> None:
    machine.v2("/docker/abc", docker__abc={"memory__max": 8 * GB, "memory__current": 3 * GB, "memory__stat": "anon 1\ninactive_file 0"})
    assert machine.free == 5 * GB
    assert tightest(machine.root).name == "/sys/fs/cgroup/docker/abc/memory.max"


def test_v2_page_cache_is_not_used(machine: Machine) -> None:
    stat = f"anon {GB}\nfile {2 * GB}\nactive_file {GB // 2}\ninactive_file {3 * GB // 2}\nworkingset_refault_file 7"
    machine.v2("/a", a={"memory__max": 8 * GB, "memory__current": 3 * GB, "memory__stat": stat})
    assert machine.free == 8 * GB - GB


@pytest.mark.parametrize("files", [{"memory__max": "max"}, {"memory__max": NO_LIMIT_V1}, {"memory__high": "max", "memory__max": "max"}, {}])
def test_v2_without_a_limit(machine: Machine, files: dict[str, object]) -> None:
    machine.v2("/a", a={"memory__current": 60 * GB, **files})
    assert machine.free == 40_000 * MIB


def test_v2_the_throttling_limit_counts(machine: Machine) -> None:
    machine.v2("/a", a={"memory__max": 9 * GB, "memory__high": 6 * GB, "memory__current": GB})
    assert machine.free == 5 * GB


def test_v2_every_ancestor_counts(machine: Machine) -> None:
    """The innermost is unlimited, its parent allows 10 GB; the one above allows less because a neighbour uses 7 of its 12."""
    machine.v2(
        "/user.slice/session/run",
        user__slice={"memory__max": 1},  # not ours: it is called user/slice
        **{
            "user.slice": {"memory__max": 12 * GB, "memory__current": 8 * GB, "memory__stat": "inactive_file 1000000"},
            "user.slice__session": {"memory__max": 10 * GB, "memory__current": GB},
            "user.slice__session__run": {"memory__max": "max", "memory__current": GB},
        },
    )
    assert machine.free == 4 * GB + 1_000_000


def test_v2_the_mount_of_a_container_counts(machine: Machine) -> None:
    """In a container only its own part is mounted, and its limits lie at the mount itself."""
    machine.v2("/docker/abc", top={"memory__max": 2 * GB, "memory__current": GB})
    machine.write("proc/self/mountinfo", "25 21 0:22 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert machine.free == GB


def test_v1_limit_less_what_is_used(machine: Machine) -> None:
    stat = f"cache {GB}\ninactive_file 5\ntotal_cache {2 * GB}\ntotal_inactive_file {GB}"
    limited = {"memory__limit_in_bytes": 8 * GB, "memory__usage_in_bytes": 3 * GB, "memory__stat": stat}
    machine.v1("/docker/abc", docker__abc=limited)
    assert machine.free == 6 * GB, "the hierarchy's cache counts, not the group's own"
    assert tightest(machine.root).name == "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes"


def test_v1_without_a_limit(machine: Machine) -> None:
    machine.v1("/a", a={"memory__limit_in_bytes": NO_LIMIT_V1, "memory__usage_in_bytes": 60 * GB})
    assert [free.name for free in free_memory(machine.root)] == ["MemAvailable"]
    assert machine.free == 40_000 * MIB


def test_v1_every_ancestor_counts(machine: Machine) -> None:
    inner = {"memory__limit_in_bytes": 20 * GB, "memory__usage_in_bytes": GB}
    outer = {"memory__limit_in_bytes": 4 * GB, "memory__usage_in_bytes": 2 * GB}
    machine.v1("/a/b", a=outer, a__b=inner)
    assert machine.free == 2 * GB


def test_what_is_over_its_limit_has_nothing_free(machine: Machine) -> None:
    machine.v2("/a", a={"memory__max": GB, "memory__current": 2 * GB})
    assert machine.free == 0


def test_more_cache_than_use_frees_no_more_than_the_limit(machine: Machine) -> None:
    machine.v2("/a", a={"memory__max": GB, "memory__current": MIB, "memory__stat": f"inactive_file {2 * GB}"})
    assert machine.free == GB


def test_a_limit_without_a_use_is_a_limit(machine: Machine) -> None:
    machine.v2("/a", a={"memory__max": GB})
    assert machine.free == GB


@pytest.mark.parametrize("content", ["", "garbage", "-1", "12 34"])
def test_unreadable_limits_are_none(machine: Machine, content: str) -> None:
    machine.v2("/a", a={"memory__max": content, "memory__current": content, "memory__stat": content})
    assert machine.free == 40_000 * MIB


@pytest.mark.parametrize(
    ("data", "space", "free", "name"),
    [
        ("unlimited", "unlimited", 40_000 * MIB, "MemAvailable"),
        ("unlimited", str(5 * GB), 5 * GB - 3_000_000 * 1024, "RLIMIT_AS (ulimit)"),
        (str(4 * GB), str(20 * GB), 4 * GB - 1_000_000 * 1024, "RLIMIT_DATA (ulimit)"),
        ("0", "unlimited", 0, "RLIMIT_DATA (ulimit)"),
    ],
)
def test_limits_of_the_process(machine: Machine, data: str, space: str, free: int, name: str) -> None:
    machine.write("proc/self/limits", LIMITS.format(data=data, space=space))
    machine.write("proc/self/status", "Name:\tpython\nVmSize:\t 3000000 kB\nVmRSS:\t  200000 kB\nVmData:\t 1000000 kB\n")
    assert (machine.free, tightest(machine.root).name) == (free, name)


def test_pressure_is_the_highest_of_system_and_groups(machine: Machine) -> None:
    assert memory_pressure(machine.root) is None
    machine.write("proc/pressure/memory", PSI.format(some="1.50", full="0.25"))
    assert memory_pressure(machine.root) == Pressure("/proc/pressure/memory", 1.5, 0.25)
    machine.v2(
        "/a/b",
        a={"memory__pressure": PSI.format(some="20.00", full="12.34")},
        a__b={"memory__pressure": PSI.format(some="3.00", full="2.00")},
    )
    assert memory_pressure(machine.root) == Pressure("/sys/fs/cgroup/a/memory.pressure", 20.0, 12.34)


def test_pressure_without_full(machine: Machine) -> None:
    machine.write("proc/pressure/memory", "some avg10=2.00 avg60=0.00 avg300=0.00 total=123\n")
    assert memory_pressure(machine.root) == Pressure("/proc/pressure/memory", 2.0, 0.0)


# --- sizes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("8GB", 8 * GB),
        ("500MB", 500_000_000),
        ("1.5GB", 1_500_000_000),
        ("2GiB", 2 << 30),
        ("2 gib", 2 << 30),
        (" 0.1 TB ", 10**11),
        ("17547264B", 17_547_264),
        ("1KiB", 1024),
        ("3kB", 3000),
        ("8.2GB", 8_200_000_000),
        ("1.001TB", 1_001_000_000_000),
        ("1.0000000009GB", 1_000_000_000),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text, "--memory") == nbytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "GB",
        "8G",
        "8 Gb/s",
        "-1GB",
        "+1GB",
        "1e3GB",
        "1,5GB",
        "1.GB",
        ".5GB",
        "8GB 1",
        "nanGB",
        "inf",
        "٣GB",
        "0GB",
        "0.4B",
        "9" * 30 + "TB",
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--trunk-memory: needed ") as caught:
        parse_size(text, "--trunk-memory")
    assert repr(text) in str(caught.value)
    assert caught.value.exit_code == 2


@given(st.integers(1, 10**14))
def test_written_sizes_can_be_read(nbytes: int) -> None:
    read = parse_size(format_size(nbytes), "--memory")
    assert read <= nbytes
    assert nbytes - read <= nbytes // 1000


def test_how_sizes_look() -> None:
    assert [format_size(n) for n in (1, 999, 1500, 8 * GB, 1_536_000_000, 17_547_264)] == [
        "1B",
        "999B",
        "1.5KB",
        "8GB",
        "1.536GB",
        "17.547MB",
    ]


def test_the_budget() -> None:
    assert {name: nbytes // GB for name, nbytes in PRESETS.items()} == {
        "laptop": 8,
        "desktop": 32,
        "workstation": 96,
        "server": 128,
        "max": 224,
    }
    assert chosen_budget(None, None) is None
    assert chosen_budget("2GB", None) == 2 * GB
    assert chosen_budget(None, "workstation") == 96 * GB
    with pytest.raises(UsageError, match=r"found both .*--memory 2GB --preset max"):
        chosen_budget("2GB", "max")
    with pytest.raises(UsageError, match=r"--preset: needed one of laptop \(8GB\), .*, found 'phone'"):
        chosen_budget(None, "phone")
