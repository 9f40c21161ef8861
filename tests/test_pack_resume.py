"""Packing stopped at any point: nothing left that a reader would trust, nothing sound done again, the same bytes in the end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import missing
from helpers_pack import SMALL, files_of, packed_from, source_of

from lilliput.errors import DoesNotFitError, InputError, LilliputError, UsageError
from lilliput.machine import durable
from lilliput.weights import pack_output
from lilliput.weights.pack import pack
from lilliput.weights.packed import find_packed, open_packed

KILLER = Path(__file__).parent / "run_pack_kills.py"
PACKED = ["tape.json", "tape.k12"]
SIGKILL = -signal.SIGKILL


class Stop(BaseException):
    pass


def stop_after(pieces: int) -> Callable[[int, int], None]:
    left = [pieces]

    def progress(done: int, total: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Stop

    return progress


def stopped(model: Path, out: Path, pieces: int, **options: Any) -> None:
    with pytest.raises(Stop):
        pack(source_of(model), out, threads=2, piece_bytes=SMALL, progress=stop_after(pieces), **options)


@pytest.fixture(scope="module")
def whole(tiny_synth: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny` packed in one go."""
    out = tmp_path_factory.mktemp("whole") / "p"
    packed_from(tiny_synth, out, piece_bytes=SMALL)
    return out


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_killed_at_thirty_random_points_and_at_each_of_the_last(tiny_synth: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(KILLER), str(tiny_synth), str(tmp_path), "7", "30"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    *times, often = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(times) == 42
    assert [time["trusted"] for time in times[-4:]] != [False] * 4
    for time in times:
        assert time["code"] == SIGKILL, time
        assert time["resumed"] == 0, time
        assert time["same"], time
        assert time["names"] == PACKED, time
        assert time["kept"] >= time["written"], time  # at most the piece in flight is done again
        assert not time["trusted"] or time["kept"] == max(t["kept"] for t in times), time  # a manifest only when all was there
    assert max(t["kept"] for t in times) > 100
    assert often["rounds"] >= 3
    assert often["same"]
    assert often["names"] == PACKED


@pytest.mark.parametrize("pieces", [1, 40, 700])
def test_a_stopped_run_goes_on(tiny_synth: Path, whole: Path, tmp_path: Path, pieces: int) -> None:
    stopped(tiny_synth, tmp_path / "p", pieces)
    assert not (tmp_path / "p" / "tape.json").exists()
    source = source_of(tiny_synth)
    assert find_packed(tiny_synth, source.checkpoint, source.config_hash, source.layout) is None
    with pytest.raises(InputError, match=r"tape\.json: needed the manifest.*found an unfinished packing\n.*again to finish it"):
        open_packed(tmp_path / "p")
    seen: list[int] = []
    summary = pack(source, tmp_path / "p", threads=2, piece_bytes=SMALL, progress=lambda done, total: seen.append(done))
    assert summary["pieces_kept"] == pieces
    assert seen == sorted(seen)
    assert len(seen) == summary["pieces"]
    assert files_of(tmp_path / "p") == files_of(whole)


def damage_tape(folder: Path) -> None:
    with (folder / "tape.k12.partial").open("r+b") as file:
        file.seek(30 * 4096 + 100)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def cut_tape(folder: Path) -> None:
    os.truncate(folder / "tape.k12.partial", 30 * 4096)


def garbage_behind(folder: Path) -> None:
    with (folder / "tape.k12.partial").open("ab") as file:
        file.write(b"\xff" * 100_000)


def cut_journal(folder: Path) -> None:
    os.truncate(folder / "tape.journal", (folder / "tape.journal").stat().st_size - 5)


def damage_journal(folder: Path) -> None:
    raw = bytearray((folder / "tape.journal").read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / "tape.journal").write_bytes(raw)


def lose_journal(folder: Path) -> None:
    (folder / "tape.journal").unlink()


def empty_journal(folder: Path) -> None:
    os.truncate(folder / "tape.journal", 0)


def lose_tape(folder: Path) -> None:
    (folder / "tape.k12.partial").unlink()


DAMAGE = [damage_tape, cut_tape, garbage_behind, cut_journal, damage_journal, lose_journal, empty_journal, lose_tape]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_what_a_power_cut_may_leave_is_found_and_done_again(
    tiny_synth: Path, whole: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    stopped(tiny_synth, tmp_path / "p", 300)
    damage(tmp_path / "p")
    summary = pack(source_of(tiny_synth), tmp_path / "p", threads=2, piece_bytes=SMALL)
    kept = summary["pieces_kept"]
    assert {"garbage_behind": kept >= 299, "cut_journal": kept == 299}.get(damage.__name__, kept < 299), kept
    assert kept == 0 or damage not in (lose_journal, empty_journal, lose_tape)
    assert files_of(tmp_path / "p") == files_of(whole)


def test_progress_of_something_else_is_not_built_on(tiny_synth: Path, whole: Path, tmp_path: Path) -> None:
    stopped(tiny_synth, tmp_path / "p", 100, forced=True)
    summary = pack(source_of(tiny_synth), tmp_path / "p", threads=2, piece_bytes=SMALL)
    assert summary["pieces_kept"] == 0
    assert files_of(tmp_path / "p") == files_of(whole)


def test_a_shard_that_changed_meanwhile_means_a_new_start(tiny_synth: Path, whole: Path, tmp_path: Path) -> None:
    """Names and sizes may be the same and the bytes others: a tape of two checkpoints must not come of it."""
    model = tmp_path / "m"
    model.mkdir()
    for path in tiny_synth.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    stopped(model, tmp_path / "p", 100)
    shard = sorted(model.glob("*.safetensors"))[3]
    os.utime(shard, ns=(1, shard.stat().st_mtime_ns + 1))
    assert pack(source_of(model), tmp_path / "p", threads=2, piece_bytes=SMALL)["pieces_kept"] == 0
    assert files_of(tmp_path / "p") == files_of(whole)


def test_two_packers_do_not_meet(tiny_synth: Path, tmp_path: Path) -> None:
    stopped(tiny_synth, tmp_path / "p", 10)
    before = files_of(tmp_path / "p")
    lock = os.open(tmp_path / "p", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with pytest.raises(UsageError, match="another `lilliput pack` is writing here"):
        pack(source_of(tiny_synth), tmp_path / "p", threads=1, piece_bytes=SMALL)
    assert files_of(tmp_path / "p") == before
    os.close(lock)


def test_no_thread_is_left_behind(tiny_synth: Path, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    stopped(tiny_synth, tmp_path / "p", 100)
    pack(source_of(tiny_synth), tmp_path / "p", threads=3, piece_bytes=SMALL)
    assert set(threading.enumerate()) == before


# --- a full disk ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize(("call", "number"), [("pwrite", 1), ("pwrite", 200), ("fsync", 1), ("fsync", 3), ("ftruncate", 3), ("rename", 2)])
def test_every_failed_write_ends_in_one_sentence_and_can_go_on(
    tiny_synth: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str, number: int
) -> None:
    real, left = getattr(os, call), [number]

    def failing(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(pack_output, "FLUSH_EVERY", 1_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(LilliputError) as caught:
            pack(source_of(tiny_synth), tmp_path / "p", threads=2, piece_bytes=SMALL)
    assert caught.value.exit_code == (1 if code == errno.EIO else 3) or isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "p" / "tape.json").exists()
    summary = pack(source_of(tiny_synth), tmp_path / "p", threads=2, piece_bytes=SMALL)
    assert summary["pieces_kept"] >= (call == "pwrite" and number - 3) // 2
    assert files_of(tmp_path / "p") == files_of(whole)


def test_a_limit_on_file_sizes_is_exit_code_3(tiny_synth: Path, tmp_path: Path) -> None:
    out = tmp_path / "p"
    command = [sys.executable, "-m", "lilliput", "pack", str(tiny_synth), "-o", str(out)]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    full = subprocess.run(command, env=environment(), capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode == 3
    assert "`ulimit -f` does not allow files this large; what is written is kept" in full.stderr
    assert "Traceback" not in full.stderr
    assert not (out / "tape.json").exists()
    again = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert "pieces from before" in again.stderr
    packed_from(tiny_synth, tmp_path / "q")
    assert files_of(out) == files_of(tmp_path / "q")


def test_a_disk_that_is_full(tiny_synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True).returncode:
        missing("no file system can be mounted here")
    try:
        with pytest.raises(DoesNotFitError, match=r"needs 0\.00 GB of free disk"):
            pack(source_of(tiny_synth), disk / "p", threads=2)
        assert list(disk.iterdir()) == []
        monkeypatch.setattr(durable, "free_bytes", lambda directory: 10**12)
        with pytest.raises(DoesNotFitError, match=r"the disk became full while writing .* what is written is kept"):
            pack(source_of(tiny_synth), disk / "p", threads=2)
        assert sorted(p.name for p in (disk / "p").iterdir()) == ["tape.journal", "tape.k12.partial"]
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        assert pack(source_of(tiny_synth), disk / "p", threads=2)["pieces_kept"] > 20
        packed_from(tiny_synth, tmp_path / "q")
        assert files_of(disk / "p") == files_of(tmp_path / "q")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_keep_what_is_done(tiny_synth: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The signal comes from within, after the fortieth piece: nothing here depends on time."""
    program = f"""
import os, sys
from lilliput.__main__ import main
from lilliput.weights import pack_output
append = pack_output.Output.append
def seen(self, *arguments):
    entry = append(self, *arguments)
    if len(self.entries) == 40:
        os.kill(os.getpid(), {int(number)})
    return entry
pack_output.Output.append = seen
sys.argv = ["lilliput", "pack", {str(tiny_synth)!r}, "-o", {str(tmp_path / "p")!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert done.returncode == code
    assert "run the same command again to go on" in done.stderr
    assert "Traceback" not in done.stderr
    summary = pack(source_of(tiny_synth), tmp_path / "p", threads=2)
    assert summary["pieces_kept"] == 40
    packed_from(tiny_synth, tmp_path / "q")
    assert files_of(tmp_path / "p") == files_of(tmp_path / "q")
