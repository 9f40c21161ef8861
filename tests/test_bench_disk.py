"""`bench disk`: the engine's shapes, and no speed of memory sold as the disk's. Counters are asserted, speeds are not."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import missing
from reading_files import write_random

from lilliput.bench import disk as bench
from lilliput.bench.disk import Shape, find_devices, measure_disk
from lilliput.cli.bench_disk import disk
from lilliput.cli.main import run
from lilliput.errors import LilliputError, UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count what came from the disk")

MB = 1_000_000
SHAPES = (Shape("plain", 1 << 20, 1, 1), Shape("pieces", 1 << 20, 2, 4), Shape("experts", 1_500_001, 4, 3))
SMALL: dict[str, Any] = {"shapes": SHAPES, "run_bytes": 12 * MB, "least_file": 4 * MB, "least_total": 16 * MB}


@pytest.fixture
def in_memory() -> Iterator[Path]:
    if not os.access("/dev/shm", os.W_OK):
        missing("/dev/shm is not here")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def on_disk(tmp_path: Path) -> Path:
    """Two large files, and what is to be passed over: a small one, a sparse one, a directory."""
    for name, size in (("a.bin", 12 * MB + 17), ("b.bin", 9 * MB), ("small.bin", MB)):
        write_random(tmp_path / name, size)
        with (tmp_path / name).open("rb") as file:
            os.fsync(file.fileno())
    (tmp_path / "hole.bin").touch()
    os.truncate(tmp_path / "hole.bin", 50 * MB)
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_every_shape_reads_what_it_says_from_the_disk(on_disk: Path) -> None:
    seen: list[tuple[int, int]] = []
    try:
        (report,) = measure_disk(on_disk, repeats=2, progress=lambda done, total: seen.append((done, total)), **SMALL)
    except LilliputError as error:
        if "came from a disk" in str(error):
            missing("the temporary directory is not on a disk")
        raise
    assert report["files"] == [str(on_disk / "a.bin"), str(on_disk / "b.bin")]
    assert report["bytes"] == 21 * MB + 17
    assert seen == [(i + 1, 6) for i in range(6)]
    assert [(row["shape"], row["threads"], row["at_once"], row["runs"]) for row in report["shapes"]] == [
        ("plain", 1, 1, 2),
        ("pieces", 2, 4, 2),
        ("experts", 4, 3, 2),
    ]
    for row, shape in zip(report["shapes"], SHAPES, strict=True):
        assert row["bytes"] == 2 * (12 * MB // shape.nbytes) * shape.nbytes
        assert row["bytes_from_disk"] >= 0.98 * row["bytes"]
        assert 0 < row["gb_per_s"]["lowest"] <= row["gb_per_s"]["median"] <= row["gb_per_s"]["highest"]
        assert row["cpu_s_per_gb"] > 0
    assert report["shapes"][0]["ratio"] == 1.0
    json.dumps(report)


def test_files_in_memory_are_refused(in_memory: Path) -> None:
    write_random(in_memory / "a.bin", 20 * MB)
    with pytest.raises(LilliputError, match="came from a disk, the rest from memory") as caught:
        measure_disk(in_memory, **SMALL)
    assert caught.value.exit_code == 1
    with pytest.raises(LilliputError, match="it lives in memory"):
        measure_disk(in_memory, **SMALL | {"shapes": SHAPES[1:]})


def test_cached_files_are_refused(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where direct reads are refused and the cache cannot be dropped, memory answers."""

    class Buffered(bench.Reader):
        def __init__(self, threads: int) -> None:
            super().__init__(threads=threads, direct=False)

    monkeypatch.setattr(bench, "Reader", Buffered)
    monkeypatch.setattr(bench, "_forget_cached", lambda path: path.read_bytes())
    with pytest.raises(LilliputError, match="that is not the disk's speed"):
        measure_disk(on_disk, **SMALL | {"shapes": SHAPES[1:]})


def test_too_little_to_read_is_refused_with_the_numbers(on_disk: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"needed 1,000,000,000 bytes of data in files of 64,000,000 or more directly in it, not in directories below, found 0",
    ):
        measure_disk(on_disk)
    with pytest.raises(UsageError, match=r"found 21,000,017 \(hole.bin is sparse \(0 of 50,000,000 bytes on disk\)\)"):
        find_devices(on_disk, 4 * MB, 22 * MB)
    with pytest.raises(UsageError, match=r"small\.bin has 1,000,000 bytes"):
        find_devices(on_disk / "small.bin")
    with pytest.raises(UsageError, match="nowhere: cannot be examined: No such file"):
        find_devices(on_disk / "nowhere")
    with pytest.raises(UsageError, match="--repeats"):
        measure_disk(on_disk, repeats=0)


def test_each_device_is_measured_by_itself(on_disk: Path, in_memory: Path) -> None:
    write_random(in_memory / "c.bin", 30 * MB)
    (on_disk / "c.bin").symlink_to(in_memory / "c.bin")
    first, second = find_devices(on_disk, 4 * MB, 16 * MB)
    assert [file.path.name for file in first.files] == ["c.bin"]
    assert [file.path.name for file in second.files] == ["a.bin", "b.bin"]


def test_sequences_go_on_where_they_stopped(on_disk: Path) -> None:
    (device,) = find_devices(on_disk, 4 * MB, 16 * MB)
    first, second = (list(device.sequence(4 * MB, 12 * MB)) for _ in range(2))
    assert first == [(0, 0), (0, 4 * MB), (0, 8 * MB)]
    assert second == [(1, 0), (1, 4 * MB), (0, 0)]
    places = list(device.scattered(3 * MB, 300 * MB, seed=1))
    assert len(places) == 100
    assert all(offset + 3 * MB <= device.files[number].size for number, offset in places)
    assert {number for number, _ in places} == {0, 1}
    assert places != list(device.scattered(3 * MB, 300 * MB, seed=2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "demo",
            r"/lilliput/demo: needed 1,000,000,000 bytes of data in files of 64,000,000 or more directly in it, .*, found 0",
        ),
        ("./demo", r"demo: cannot be examined: No such file"),
        ("~/none", r"/none: cannot be examined: No such file"),
        ("", r"FILE\|DIR: needed a path, found nothing"),
    ],
)
def test_the_word_demo_is_the_model_in_the_box(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["bench", "disk", given]) == 2
    err = capsys.readouterr().err
    assert re.search(message, err)
    assert "~" not in err


def test_the_verb_writes_its_report(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"shape": "pieces", "extent_bytes": 1, "threads": 4, "at_once": 16, "runs": 3, "bytes": 3, "bytes_from_disk": 3}
    row |= {"gb_per_s": {"median": 2.5, "lowest": 2.0, "highest": 3.0}, "cpu_s_per_gb": 0.01, "ratio": 1.25}
    report = {"files": ["x"], "bytes": 5, "mode": "buffered", "why_buffered": ["refused"], "alignment": 512, "shapes": [row]}
    monkeypatch.setattr("lilliput.cli.bench_disk.measure_disk", lambda *_, **__: [report])
    asked = CliRunner().invoke(disk, [str(on_disk), "--json", "-"])
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout) == {"command": "bench disk", "path": str(on_disk), "devices": [report]}
    shown = CliRunner().invoke(disk, [str(on_disk), "-q"]).stdout
    for word in ("x: 0.0 GB, buffered reads (refused), aligned to 512", "pieces", "2.50", "1.25"):
        assert word in shown
