"""How many threads a computation gets when the user does not say: what this process may really use at once."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import psutil

from lilliput.machine.cgroups import limiting_directories


def _numbers(path: Path) -> list[int]:
    """The whole numbers in a small file; nothing for one that is absent, or says `max`."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def _quota(directory: Path) -> int | None:
    """CPUs that one control group allows, rounded down but at least 1; None without a limit."""
    numbers = _numbers(directory / "cpu.max")  # version 2: quota and period
    if len(numbers) != 2:
        numbers = _numbers(directory / "cpu.cfs_quota_us") + _numbers(directory / "cpu.cfs_period_us")
    if len(numbers) != 2 or numbers[0] <= 0 or numbers[1] <= 0:  # version 1 writes -1 for no limit
        return None
    return max(1, numbers[0] // numbers[1])


def _physical_cores(cpus: Collection[int], root: Path) -> int | None:
    """Cores behind these logical CPUs: hyperthreads of one core name the same list of siblings. None where that is not told."""
    cores = set()
    for cpu in cpus:
        try:
            cores.add((root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            return None
    return len(cores)


def default_threads(root: Path = Path("/"), cpus: Collection[int] | None = None) -> int:
    """min(affinity, control group quotas, physical cores), at least 1.

    The kernels fill a core's arithmetic by themselves, so a second hyperthread gains nothing, and a thread beyond a quota makes the
    whole group sleep. `root` and `cpus` (logical CPUs this process may run on) are for tests; by default this machine's.
    """
    if cpus is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    limits = [len(cpus)]
    limits += [quota for directory in limiting_directories("cpu", root) if (quota := _quota(directory)) is not None]
    cores = _physical_cores(cpus, root)
    if cores is None:
        cores = psutil.cpu_count(logical=False)
    if cores is not None:
        limits.append(cores)
    return max(1, min(limits))
