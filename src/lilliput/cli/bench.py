"""`lilliput bench`: measured speed."""

from __future__ import annotations

from pathlib import Path

import click

from lilliput.bench.open import measure_open
from lilliput.cli import options
from lilliput.cli.bench_decode import decode
from lilliput.cli.bench_disk import disk
from lilliput.cli.bench_ladder import ladder
from lilliput.cli.console import write_json
from lilliput.engine.models import find_model


@click.group()
def bench() -> None:
    """Measure, with ratios rather than promises."""


@bench.command("open")
@click.argument("model")
@options.json_option
def open_(model: str, json_file: str | None) -> None:
    """Time and memory of opening a checkpoint, with and without the index sidecar, each in a fresh process."""
    directory: Path = find_model(model)
    measured = measure_open(directory)
    write_json(json_file, {"command": "bench open", "checkpoint": str(directory), **measured})
    if json_file != "-":
        for name, value in measured.items():
            click.echo(f"{name}: {value}")


for command in (disk, decode, ladder):
    bench.add_command(command)
