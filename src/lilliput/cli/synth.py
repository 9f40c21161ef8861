"""`lilliput synth`: a synthetic checkpoint in the released layout."""

from __future__ import annotations

from pathlib import Path

import click

from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json
from lilliput.synth import write_synthetic


@click.command(cls=options.Verb)
@click.argument("directory", type=options.Input())
@click.option("--shape", required=True, type=click.Choice(["tiny", "mini", "midi", "k3"]), help="How large; k3 is full size and sparse.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Same seed, same bytes, on every machine."
)
@options.reporting
def synth(directory: Path, shape: str, seed: int, json_file: str | None, quiet: bool) -> None:
    """Write a checkpoint with random weights to DIRECTORY, which must be new or empty."""
    terminal = Terminal(quiet=quiet)
    with terminal.job_progress(f"writing {shape}") as progress:
        summary = write_synthetic(directory, shape, seed, progress)
    write_json(json_file, {"command": "synth", **summary})
    terminal.note(f"{directory}: {summary['tensors']:,} tensors, {summary['bytes']:,} bytes, {summary['bytes_on_disk']:,} on disk")
