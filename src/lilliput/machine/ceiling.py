"""A memory ceiling that the kernel enforces on a child process, swap off: a control group (version 1 or 2) or a scope of systemd.

A process beyond it is killed; page cache counts, but gives way first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lilliput.errors import UsageError

ROOT = Path("/sys/fs/cgroup")
PAGE = 1 << 16  # the kernel rounds a limit to pages, the largest of which have this size
PROBE_SECONDS = 20

# Where a process in a scope finds its own limit: version 2, then version 1.
_PROBE = """
for group in $(sed -n 's/^0:://p' /proc/self/cgroup); do cat "/sys/fs/cgroup$group/memory.max" 2>/dev/null; done
for group in $(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup); do
    cat "/sys/fs/cgroup/memory$group/memory.limit_in_bytes" 2>/dev/null
done
"""


class NoCeilingError(UsageError):
    """No memory ceiling can be made here; the message says what was tried."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """`kind` names the means, for reports. `group` is the directory of the control group, where we made it."""

    kind: str
    nbytes: int
    group: Path | None
    prefix: tuple[str, ...]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command that runs `arguments` below the ceiling, in the same process."""
        return [*self.prefix, *arguments]

    def peak(self) -> int | None:
        """The most memory the group used, page cache included, in bytes; None where nobody counts it."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.group is not None and (self.group / name).exists():
                return int((self.group / name).read_text())
        return None


@contextmanager
def ceiling(nbytes: int, root: Path = ROOT) -> Iterator[Ceiling]:
    """A ceiling of `nbytes` for processes started while the block runs, and ended before its end. Raises NoCeilingError.

    `root` stands for /sys/fs/cgroup in tests.
    """
    group, why = _make_group(nbytes, root)
    if group is None:
        yield _scope(nbytes, why)
        return
    version = "cgroup v1" if (group / "memory.limit_in_bytes").exists() else "cgroup v2"
    try:
        # The shell puts itself into the group and becomes the command, so that not one page is taken outside.
        yield Ceiling(version, nbytes, group, ("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)))
    finally:
        with suppress(OSError):  # somebody is still in it: the system's owner will see an empty group later
            group.rmdir()


def _make_group(nbytes: int, root: Path) -> tuple[Path | None, str]:
    """A new group with its limit, or None and the reason."""
    base = root / "memory" if (root / "memory" / "memory.limit_in_bytes").exists() else root
    group = base / f"lilliput-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    limit, swap, swap_value = "memory.max", "memory.swap.max", "0"
    if base != root:
        limit, swap, swap_value = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(nbytes)
    try:
        group.mkdir()
    except OSError as error:
        return None, f"no control group can be made in {base} ({error.strerror})"
    try:
        if not (group / limit).exists():
            raise OSError(0, "the memory controller is not enabled there")
        (group / limit).write_text(str(nbytes))
        if (group / "memory.swappiness").exists():
            (group / "memory.swappiness").write_text("0")
        if (group / swap).exists():  # absent where the kernel does not count swap, or has none
            (group / swap).write_text(swap_value)
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        return None, f"no control group with a limit can be made in {base} ({error.strerror})"
    return group, ""


def _scope(nbytes: int, why: str) -> Ceiling:
    """systemd's way, for users who may not make groups themselves."""
    if shutil.which("systemd-run") is None:
        raise NoCeilingError(f"no memory ceiling can be made: {why}, and there is no systemd-run; run as root, or where control groups are")
    user = () if os.geteuid() == 0 else ("--user",)
    limits = ("-p", f"MemoryMax={nbytes}", "-p", "MemorySwapMax=0")
    prefix = ("systemd-run", *user, "--scope", "--quiet", *limits, "--")
    try:
        done = subprocess.run(
            [*prefix, "/bin/sh", "-c", _PROBE], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCeilingError(f"no memory ceiling can be made: {why}, and systemd-run failed ({error})") from error
    found = [int(number) for number in re.findall(r"^\d+$", done.stdout, re.MULTILINE)]
    if done.returncode != 0 or not any(abs(number - nbytes) <= PAGE for number in found):
        said = done.stderr.strip().splitlines()[-1:] or ["a scope with the limit asked for does not have it"]
        raise NoCeilingError(f"no memory ceiling can be made: {why}, and systemd-run does not do it either ({said[0]})")
    return Ceiling("systemd scope", nbytes, None, prefix)
