"""`lilliput bench disk`: how fast weights can arrive."""

from __future__ import annotations

from typing import Any

import click

from lilliput.bench.disk import measure_disk
from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.tables import console, table
from lilliput.engine.models import find_model, is_demo
from lilliput.machine.places import expand


@click.command("disk", cls=options.Verb)
@click.argument("path", metavar="FILE|DIR")
@click.option("--repeats", type=int, default=3, metavar="N", show_default=True, help="Runs of each shape.")
@options.reporting
def disk(path: str, repeats: int, json_file: str | None, quiet: bool) -> None:
    """Read as the engine reads: the tape's pieces in sequence and experts anywhere, with 1 to 8 reads in flight.

    FILE should be larger than any cache on the way; of DIR the large files are taken, each device by itself.
    Reads that memory answered are refused, not reported. `demo` is the model in the box, as everywhere: it is too small for this.
    """
    place = find_model(path) if is_demo(path) else expand(path, "FILE|DIR")
    terminal = Terminal(quiet=quiet)
    with terminal.job_progress("reading") as progress:
        reports = measure_disk(place, repeats=repeats, progress=progress)
    write_json(json_file, {"command": "bench disk", "path": str(place), "devices": reports})
    if json_file != "-":
        for report in reports:
            _show(report)


def _show(report: dict[str, Any]) -> None:
    out = console()
    files = report["files"]
    named = files[0] if len(files) == 1 else f"{len(files)} files beside {files[0]}"
    why = f" ({'; '.join(report['why_buffered'])})" if report["why_buffered"] else ""
    out.print(f"{named}: {report['bytes'] / 1e9:.1f} GB, {report['mode']} reads{why}, aligned to {report['alignment']}")
    shown = table("shape", "threads", "GB/s", "lowest", "highest", "CPU s/GB", "of plain")
    for row in report["shapes"]:
        speed = row["gb_per_s"]
        numbers = [f"{speed[name]:.2f}" for name in ("median", "lowest", "highest")]
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        shown.add_row(row["shape"], str(row["threads"]), *numbers, f"{row['cpu_s_per_gb']:.3f}", ratio)
    out.print(shown)
