"""`lilliput bench decode`: how near decoding comes to the slower of reading and computing."""

from __future__ import annotations

from typing import Any

import click

from lilliput.bench.decode import measure_decode
from lilliput.cli import options
from lilliput.cli.bench_tables import bound, met, rounds, show_busy, show_splits
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.tables import console, table
from lilliput.engine.engine import Engine
from lilliput.engine.report import facts, in_short
from lilliput.engine.source import Source, check_max_tokens
from lilliput.machine.memory import format_size

IMPOSSIBLE = 0.95  # of the slower of reading and computing; nearer to 1 it is how exactly they can be measured


@click.command("decode", cls=options.Verb)
@click.argument("model")
@click.option("--ids", type=options.Ids(), default="1,2,3,4,5", show_default=True, metavar="1,2,3", help="The prompt as token ids.")
@click.option("-n", "--tokens", type=int, default=4, show_default=True, metavar="N", help="Passes per round.")
@click.option("--repeats", type=int, default=5, show_default=True, metavar="N", help="Rounds.")
@options.memory
@options.machine
@options.reporting
def decode(
    model: str,
    ids: list[int],
    tokens: int,
    repeats: int,
    memory: options.Memory,
    threads: int | None,
    isa: str | None,
    layers: int | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Time passes of one token beside what they cannot beat: their reading alone and their computing alone.

    All in one process, in rounds. Give a --memory at which the trunk streams. Sparse files, and reads that memory answered, are
    refused: they would show no disk.
    """
    terminal = Terminal(quiet=quiet, verbose=verbose)
    check_max_tokens(tokens, "-n")
    source = Source(model, layers=layers)
    prompt = source.check_ids(ids)
    context = len(prompt) + tokens + 1
    with Engine(
        source,
        budget=memory.budget,
        context=context,
        prompt=len(prompt),
        trunk=memory.trunk,
        every_read=memory.every_read,
        threads=threads,
        isa=isa,
    ) as engine:
        with terminal.job_progress("measuring") as progress:
            found = measure_decode(engine, prompt, tokens=tokens, repeats=repeats, progress=progress)
        about = {key: value for key, value in facts(engine).items() if key != "run"}
        terminal.detail(in_short(engine))
    write_json(json_file, {"command": "bench decode", "model": model, **found, **about})
    if json_file != "-":
        _show(found)


def _show(found: dict[str, Any]) -> None:
    out = console()
    out.print(
        f"{rounds(found['rounds'])} of {found['passes_per_round']} passes, {found['bytes_per_pass']['median'] / 1e9:.3f} GB read per pass "
        f"with {format_size(found['budget_bytes'])}, trunk {found['trunk']}"
    )
    out.print(f"wall: the engine's passes; reading: the same reads alone; computing: {found['computing_is']}")
    show_busy(out, found["processor_granted"], found["threads"])
    if found["ratios"]["wall_over_limit"]["lowest"] < IMPOSSIBLE:
        out.print("the machine was busy: the engine took less time than its reading or computing alone, so they met different moments")
    shown = table("", "median", "lowest", "highest", "target", "")

    def add(name: str, values: dict[str, Any]) -> None:
        target = bound(values)
        verdict = [target, met(values["met"])] if target else ["", ""]
        shown.add_row(name, *(f"{values[which]:.4f}" for which in ("median", "lowest", "highest")), *verdict)

    for name, values in found["seconds_per_pass"].items():
        add(f"{name}, s per pass", values)
    for name, values in found["gb_per_s"].items():
        add(f"{name}, GB/s", values)
    names = {
        "wall_over_limit": "wall / max(reading, computing)",
        "streaming_over_raw": "streaming (reading while computing) / raw",
        "reading_over_raw": "reading alone / raw",
        "reader_cpu_s_per_gb": "reader, CPU s per GB",
        "reading_cpu_s_per_gb": "reader alone, CPU s per GB",
    }
    for name, values in found["ratios"].items():
        add(names[name], values)
    out.print(shown)
    out.print()
    show_splits(out, ["the engine"], [found["split"]])
    for cached in found["page_cache"]:
        out.print(f"{cached['file']} is read through the page cache: {cached['why']}")
