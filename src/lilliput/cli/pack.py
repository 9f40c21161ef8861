"""`lilliput pack` and `lilliput verify`: the packed tape."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json
from lilliput.engine import packing
from lilliput.engine.models import find_model, is_demo
from lilliput.machine.places import expand


@click.command(cls=options.Verb)
@click.argument("model")
@click.option("-o", "--output", type=options.Input(), metavar="DIR", help="Where to; default: where it is found by itself.")
@click.option("-t", "--threads", type=int, metavar="N", help="Threads; default: what affinity, quota and cores allow.")
@options.reporting
def pack(model: str, output: Path | None, threads: int | None, json_file: str | None, quiet: bool) -> None:
    """Write the trunk of MODEL once more without loss in fewer bytes (K3: three quarters), for all later runs to read.

    Stopped at any point, the same command goes on where it was. The checkpoint is not changed.
    """
    terminal = Terminal(quiet=quiet)
    source = packing.open_source(model)
    place = output or packing.default_place(source)
    try:
        with terminal.job_progress("packing") as progress:
            summary = packing.pack_model(source, place, threads=threads, progress=progress)
    except Exception:
        raise
    except BaseException:  # Ctrl-C, SIGTERM
        terminal.note(f"stopped; what is packed is kept in {place}: run the same command again to go on")
        raise
    write_json(json_file, {"command": "pack", **summary})
    kept = f", {summary['pieces_kept']:,} of {summary['pieces']:,} pieces from before" if summary["pieces_kept"] else ""
    terminal.note(f"{place}: {summary['bytes']:,} bytes, {summary['ratio']:.4f} of bf16, {summary['bytes_on_disk']:,} on disk{kept}")
    if summary["pieces_kept"] == summary["pieces"]:
        terminal.note(f"it was finished before and is not read again: `lilliput verify {shlex.quote(str(place))}` checks it")
    if output is not None:
        terminal.note(f"use it with `--trunk {shlex.quote(str(place))}`")


@click.command(cls=options.Verb)
@click.argument("packed", metavar="PACKED_DIR")
@options.reporting
def verify(packed: str, json_file: str | None, quiet: bool) -> None:
    """Read a packed tape and compare every piece with its checksum."""
    directory = find_model(packed) if is_demo(packed) else expand(packed, "PACKED_DIR")
    terminal = Terminal(quiet=quiet)
    with terminal.job_progress("checking") as progress:
        summary = packing.verify_packed(directory, progress)
    write_json(json_file, {"command": "verify", **summary})
    terminal.note(f"{directory}: {summary['pieces']:,} pieces, {summary['bytes']:,} bytes, all sound")
