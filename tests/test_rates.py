"""Measured speeds: kept for the machine and device, honest where the disk could not be asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lilliput
from lilliput import _core
from lilliput.bench import rates as bench
from lilliput.engine import engine
from lilliput.errors import LilliputError, UsageError
from lilliput.machine.costs import ASSUMED
from lilliput.machine.free import own_memory
from lilliput.machine.rates import known_rates


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "LEAST", 2_000_000)
    monkeypatch.setattr(bench, "CACHES", Path("/nowhere"))
    monkeypatch.setattr(bench, "WIDTH", 96)
    monkeypatch.setattr(bench, "LATENT", 64)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name, size in (("small", 10), ("large", 1000)):
        (tmp_path / name).write_bytes(bytes(size))
    return [tmp_path / "small", tmp_path / "large"]


def answer(monkeypatch: pytest.MonkeyPatch, gb_per_s: float | Exception) -> list[Path]:
    """What the disk's measurement says; the list gathers what was asked."""
    asked: list[Path] = []

    def measure(path: Path, **options: Any) -> list[dict[str, Any]]:
        asked.append(path)
        if isinstance(gb_per_s, Exception):
            raise gb_per_s
        return [{"shapes": [{"gb_per_s": {"median": gb_per_s}}]}]

    monkeypatch.setattr(bench, "measure_disk", measure)
    return asked


def test_what_was_measured_is_kept_for_the_way_it_was_measured(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, 2.75)
    assert known_rates(files, "bf16") is None
    found = bench.measure_rates(files, "bf16")
    assert found.disk_bytes_per_s == 2.75e9
    assert asked == [files[1].parent]
    assert found.trunk_bytes_per_s > 0
    assert found.expert_bytes_per_s > 0
    assert found.more_tokens >= 0
    assert "measured" in found.source
    assert "assumed" not in found.source
    assert known_rates(files, "bf16") == found
    assert known_rates(files, "k12") is None
    assert bench.measure_rates(files, "k12") == known_rates(files, "k12")


def test_an_engine_asks_for_the_way_it_will_compute_not_for_the_one_in_use(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 2.75)
    found = bench.measure_rates(files)
    threads, isa = _core.threads(), _core.isa()
    assert known_rates(files, "bf16", (threads, isa)) == found
    assert known_rates(files, "bf16", (threads + 1, isa)) is None
    asked = []
    monkeypatch.setattr(engine, "known_rates", lambda files, kind, machine: asked.append(machine))
    lilliput.open(Path(__file__).parent / "oracle" / "tiny-a", threads=threads + 1, isa="scalar").close()
    assert asked == [(threads + 1, "scalar")]


@pytest.mark.parametrize(
    "error",
    [
        UsageError(
            "/x: needed 1,000,000,000 bytes of data in files of 64,000,000 or more, found 0 (a is sparse (1 of 2 bytes on disk)): less"
        ),
        LilliputError("/x: only 5 of 9 bytes read came from a disk, the rest from memory: that is not the disk's speed; try others"),
        OSError(5, "Input/output error"),
    ],
)
def test_a_disk_that_does_not_answer_is_assumed_and_said_to_be(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    answer(monkeypatch, error)
    found = bench.measure_rates(files)
    assert found.disk_bytes_per_s == ASSUMED.disk_bytes_per_s
    assert "disk assumed to deliver 2.5GB/s, because it could not be measured (" in found.source
    assert known_rates(files, "bf16") is None


def test_beside_a_packed_tape_too_small_to_measure_the_shards_tell(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "a").write_bytes(bytes(2000))

    def measure(path: Path, **options: Any) -> list[dict[str, Any]]:
        if path != shards:
            raise UsageError(f"{path}: needed 1,000,000,000 bytes of data, found 1,010: less would measure a cache")
        return [{"shapes": [{"gb_per_s": {"median": 1.9}}]}]

    monkeypatch.setattr(bench, "measure_disk", measure)
    assert "needed 1,000,000,000 bytes" in bench.measure_rates(files, "k12").source
    assert bench.measure_rates(files, "k12", [shards / "a"]).disk_bytes_per_s == 1.9e9
    assert known_rates(files, "k12").disk_bytes_per_s == 1.9e9  # type: ignore[union-attr]
    monkeypatch.setattr(bench, "_device", lambda file: file.parent.name)  # the shards lie elsewhere: their speed is not the tape's
    assert "needed 1,000,000,000 bytes" in bench.measure_rates(files, "k12", [shards / "a"]).source


def test_a_real_sparse_file_is_not_taken_for_a_disk(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2_000_000_000)
    assert "the files are sparse" in bench.measure_rates([tmp_path / "model.safetensors"]).source


def test_old_and_damaged_notes_are_not_believed(files: list[Path], monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    answer(monkeypatch, 1.0)
    bench.measure_rates(files)
    (kept,) = cache.glob("rates-*.json")
    note = json.loads(kept.read_bytes())
    kept.write_text(json.dumps(note | {"when": note["when"] - 31 * 86400}))
    assert known_rates(files, "bf16") is None
    for damaged in ("", "{", json.dumps({"when": 1}), json.dumps(note | {"rates": {"disk_bytes_per_s": "fast"}})):
        kept.write_text(damaged)
        assert known_rates(files, "bf16") is None
    rates = note["rates"]
    kept.write_text(json.dumps(note))
    assert known_rates(files, "bf16") is not None
    speeds = [{name: value} for name in rates if name.endswith("per_s") for value in (0.0, -1.0, 1e-300, 1e300)]
    for forged in [*speeds, {"more_tokens": 1e300}, {"more_tokens": -1.0}, {"source": "\x1b[2J"}, {"source": "a\nb"}]:
        kept.write_text(json.dumps(note | {"rates": rates | forged}))
        assert known_rates(files, "bf16") is None, forged
    kept.write_bytes(b'{"when": 1, "rates": {"source": "\xff"}}')
    assert known_rates(files, "bf16") is None


def test_a_cache_that_cannot_be_written_costs_only_the_next_measurement(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer(monkeypatch, 1.0)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LILLIPUT_CACHE", str(tmp_path / "file" / "cache"))
    assert bench.measure_rates(files).disk_bytes_per_s == 1e9
    assert known_rates(files, "bf16") is None
    monkeypatch.setenv("LILLIPUT_CACHE", "~nobody-of-that-name/cache")  # no place at all
    assert bench.measure_rates(files).disk_bytes_per_s == 1e9
    assert known_rates(files, "bf16") is None


def test_weights_are_measured_beyond_the_largest_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CACHES", tmp_path)
    monkeypatch.setattr(bench, "LEAST", 64_000_000)
    for name, text, want in (
        ("index0", "48K", 64_000_000),
        ("index3", "65536K", 134_217_728),
        ("index4", "junk", 134_217_728),
        ("index5", "1048576K", 600_000_000),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(text + "\n")
        assert bench.beyond_caches() == want


def test_what_measuring_took_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LEAST", 200_000_000), ("WIDTH", 3072), ("LATENT", 3584)):
        monkeypatch.setattr(bench, name, value)
    before = own_memory()
    assert bench._experts() > 0
    assert own_memory() < before + 100_000_000


@pytest.mark.parametrize("odd", [os.mkfifo, Path.mkdir, lambda path: os.truncate(path, 3 << 30)], ids=["pipe", "directory", "giant"])
def test_what_is_no_file_of_ours_is_nothing(
    odd: Callable[[Path], None], files: list[Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, 2.75)
    bench.measure_rates(files, "bf16")
    (place,) = cache.iterdir()
    if odd in (os.mkfifo, Path.mkdir):
        place.unlink()
    odd(place)
    assert known_rates(files, "bf16") is None
