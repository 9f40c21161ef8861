"""`lilliput bench ladder`: what memory buys."""

from __future__ import annotations

import time
from pathlib import Path

import click

from lilliput import _core
from lilliput.bench.ladder import Ladder, climb
from lilliput.bench.ladder_report import COLUMNS, as_csv, as_json, as_markdown, cells, draw
from lilliput.cli import options, picture
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.main import exit_code_of
from lilliput.cli.tables import console, table
from lilliput.engine.models import find_model
from lilliput.engine.source import check_max_tokens, check_whole
from lilliput.machine.output import replacing

RUNGS = "2GB,4GB,8GB,12GB,16GB,20GB"


@click.command("ladder", cls=options.Verb)
@click.argument("model")
@click.option("--rungs", default=RUNGS, show_default=True, metavar="SIZE,...", help="The budgets.")
@click.option("--ids", type=options.Ids(), default="1,2,3,4,5", show_default=True, metavar="1,2,3", help="The prompt as token ids.")
@click.option("-n", "--tokens", type=int, default=4, show_default=True, metavar="N", help="Tokens per run; the first is not timed.")
@click.option("--repeats", type=int, default=3, show_default=True, metavar="N", help="Runs of each rung.")
@click.option("--trunk", type=options.Input(), metavar="DIR", help="The packed tape to use; default: the one in its place, if any.")
@click.option("-t", "--threads", type=int, metavar="N", help="Threads; default: what affinity, quota and cores allow.")
@click.option("--csv", "csv_file", type=options.Output(), metavar="FILE", help="Write the table as CSV.")
@click.option("--markdown", "markdown_file", type=options.Output(), metavar="FILE", help="Write a page with the table.")
@click.option("--plot", "plot_file", type=options.Output(), metavar="FILE.png", help="Draw it (extra `plot`; also .svg, .pdf).")
@options.reporting
def ladder(
    model: str,
    rungs: str,
    ids: list[int],
    tokens: int,
    repeats: int,
    trunk: Path | None,
    threads: int | None,
    csv_file: str | None,
    markdown_file: str | None,
    plot_file: str | None,
    json_file: str | None,
    quiet: bool,
) -> int:
    """Run `generate` at many budgets, each below a real memory ceiling of its size with swap off, and compare.

    The ids must be the same on every rung. A budget below the floor is shown as refused. Where no ceiling can be made (control
    groups of version 1 or 2, or systemd-run) nothing is measured. Ctrl-C, or another engine in the
    way, ends it and keeps what has been measured.
    """
    sizes = options.sizes(rungs, "--rungs")
    check_max_tokens(tokens, "-n")
    if threads is not None:
        check_whole("--threads", threads, 1, _core.MOST_THREADS)
    pyplot = picture.pyplot(plot_file) if plot_file else None
    directory = find_model(model).resolve()
    terminal = Terminal(quiet=quiet)
    given = [*(["--trunk", str(trunk)] if trunk else []), *(["--threads", str(threads)] if threads is not None else [])]
    began = time.monotonic()

    def told(done: int, in_all: int, what: str) -> None:
        left = (time.monotonic() - began) / done * (in_all - done)
        terminal.note(f"{what}; {done} of {in_all} runs" + (f", about {_minutes(left)} left" if done < in_all else ""))

    found = climb(directory, sizes, ids=ids, tokens=tokens, repeats=repeats, options=given, progress=told)
    write_json(json_file, as_json(found, directory))
    for file, text in ((csv_file, as_csv(found)), (markdown_file, as_markdown(found, directory))):
        if file is not None:
            with replacing(Path(file)) as out:
                out.write(text.encode())
    if plot_file is not None:
        picture.save(pyplot, draw(pyplot, found), plot_file)
    if json_file != "-":
        _show(found)
    if found.interrupt is not None:
        terminal.note("interrupted: what was measured before is kept")
    verdict = found.verdict()
    if verdict is not None:
        raise verdict
    return exit_code_of(found.interrupt)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


def _show(found: Ladder) -> None:
    out = console()
    shown = table(*COLUMNS, left=())
    for rung in found.rungs:
        shown.add_row(*cells(rung))
    out.print(shown)
    for rung in found.rungs:
        if rung.reason:
            out.print(f"{cells(rung)[0]}: {rung.reason}")
    same = next((rung.ids[0] for rung in found.rungs if rung.ids), None)
    if same is not None and len({tuple(ids) for rung in found.rungs for ids in rung.ids}) == 1:
        out.print(f"ids identical in all runs: {','.join(map(str, same))}")
