"""Packs a model again and again, killed with SIGKILL in the middle, and says after each time what the next run made of it.

    python run_pack_kills.py MODEL FOLDER SEED POINTS

Every call that changes a file system (write, truncate, sync, rename, ...) is a point where the process may die: before it, or, if it
writes, half way through it. Each time is a fork of this process, which itself does nothing but wait. One JSON line per time.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers_pack import files_of

from lilliput.engine.packing import open_source
from lilliput.weights import pack_output
from lilliput.weights.pack import pack

PIECE = 16384
CHANGES = ("pwrite", "ftruncate", "fsync", "rename", "unlink", "mkdir")

shared = mmap.mmap(-1, 16)  # calls made, pieces that are in the journal


def put(slot: int, value: int) -> None:
    shared[8 * slot : 8 * slot + 8] = struct.pack("<q", value)


def get(slot: int) -> int:
    return int(struct.unpack("<q", shared[8 * slot : 8 * slot + 8])[0])


def count_calls(die_at: int) -> None:
    """Number the calls from now on; at number `die_at` the process ends."""

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            put(0, get(0) + 1)
            if get(0) == die_at:
                if name == "pwrite":
                    fd, data, offset = arguments
                    real(fd, data[: len(data) // 2], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CHANGES:
        setattr(os, name, counted(name))


def forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(model: Path, folder: Path, seed: int, points: int) -> None:
    pack_output.FLUSH_EVERY = 100_000
    source = open_source(model)
    rng = random.Random(seed)
    kept = mmap.mmap(-1, 8)

    def run(target: Path, die_at: int) -> Callable[[], None]:
        def work() -> None:
            put(0, 0)
            put(1, 0)
            append = pack_output.Output.append

            def seen(self: pack_output.Output, *arguments: Any) -> Any:
                entry = append(self, *arguments)
                put(1, len(self.entries))
                return entry

            pack_output.Output.append = seen  # type: ignore[method-assign]
            count_calls(die_at)
            summary = pack(source, target, threads=2, piece_bytes=PIECE)
            kept[:] = struct.pack("<q", summary["pieces_kept"])

        return work

    assert forked(run(folder / "whole", -1)) == 0
    calls = get(0)
    expected = files_of(folder / "whole")
    publishing = range(calls - 11, calls + 1)  # the last syncs and renames: each of them
    for point in [*sorted(rng.sample(range(1, calls - 11), points)), *publishing]:
        target = folder / "killed"
        code = forked(run(target, point))
        written = get(1)
        trusted = (target / "tape.json").exists()
        resumed = forked(run(target, -1))
        found_files = files_of(target)
        same, names = found_files == expected, sorted(found_files)
        found = int(struct.unpack("<q", kept[:])[0])
        line = {"point": point, "code": code, "trusted": trusted, "written": written, "kept": found, "resumed": resumed}
        print(json.dumps(line | {"same": same, "names": names, "calls": calls}), flush=True)
        shutil.rmtree(target)
    # The same directory, killed ever again until it is done.
    target, rounds = folder / "often", 0
    while forked(run(target, rng.randrange(50, 200))) != 0:
        rounds += 1
    found_files = files_of(target)
    print(json.dumps({"rounds": rounds, "same": found_files == expected, "names": sorted(found_files)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
