"""`lilliput bench`: measured speed."""

from __future__ import annotations

from pathlib import Path

import click

from lilliput.bench.open import measure_open
from lilliput.cli import options
from lilliput.cli.bench_decode import decode
from lilliput.cli.bench_disk import disk
from lilliput.cli.bench_kernels import kernels
from lilliput.cli.bench_ladder import ladder
from lilliput.cli.bench_prefill import prefill
from lilliput.cli.console import write_json
from lilliput.engine.models import find_model


@click.group()
def bench() -> None:
    """Measure, with ratios rather than promises."""


@bench.command("open", cls=options.Verb)
@click.argument("model")
@options.json_option
def open_(model: str, json_file: str | None) -> None:
    """Time and memory of opening a checkpoint, with and without the index sidecar, each in a fresh process."""
    directory: Path = find_model(model)
    measured = measure_open(directory)
    write_json(json_file, {"command": "bench open", "checkpoint": str(directory), **measured})
    if json_file != "-":
        counts = f"{measured['files']:,} files, {measured['bytes']:,} bytes, {measured['tensors']:,} tensors of the text model"
        click.echo(f"{directory}: {counts}")
        for name, what in (("headers", "every header"), ("sidecar", "index sidecar")):
            found = measured[name]
            median, lowest, highest = (f"{found['seconds'][which]:.4f}" for which in ("median", "lowest", "highest"))
            unused = "" if found.get("used", True) else "; the sidecar was not used"
            grown = f"peak memory grew by at most {found['peak_rss_growth'] / 1e6:.1f} MB"
            click.echo(f"{what}: {median} s, median of {found['runs']} ({lowest} to {highest}); {grown}{unused}")


for command in (kernels, disk, decode, prefill, ladder):
    bench.add_command(command)
