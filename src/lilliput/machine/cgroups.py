"""The control groups this process lives in, version 1 and 2: every directory whose limits bind it, from the group up to the mount."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def text_of(path: Path) -> str:
    """The file's text, or nothing where there is no such file (another system, another version, a container that hides it)."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _unescape(field: str) -> str:
    """mountinfo writes blanks and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), field)


def _memberships(root: Path) -> Iterator[tuple[set[str], str]]:
    """(controllers, path in the hierarchy) of each line of /proc/self/cgroup; version 2 has the empty set."""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path:
            yield (set(controllers.split(",")) if number != "0" or controllers else set()), path


def _mounts(root: Path) -> Iterator[tuple[str, set[str], str, Path]]:
    """(type, options, path of the hierarchy that is mounted, where) of each cgroup mount."""
    for line in text_of(root / "proc/self/mountinfo").splitlines():
        before, found, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if found and len(fields) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            yield kind[0], set(kind[2].split(",")), _unescape(fields[3]), root / _unescape(fields[4]).lstrip("/")


def limiting_directories(controller: str, root: Path = Path("/")) -> list[Path]:
    """Directories that hold `controller`'s limits for this process, the innermost first, over both versions.

    A container may mount only its own part of the hierarchy, and may or may not see its path from the host's root: the part
    of the path below the mount counts, and the mount itself where the path lies outside.

    `root` stands for the root directory (tests point it at a made-up tree).
    """
    found: list[Path] = []
    for kind, options, mounted, where in _mounts(root):
        if kind == "cgroup" and controller not in options:
            continue
        for controllers, path in _memberships(root):
            if (controller in controllers) if kind == "cgroup" else not controllers:
                prefix = mounted.rstrip("/")
                inside = path[len(prefix) :] if path == prefix or path.startswith(prefix + "/") else ""
                parts = [p for p in inside.split("/") if p and p != ".."]
                found += [where.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
    return list(dict.fromkeys(found))
