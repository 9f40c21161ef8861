"""`lilliput bench prefill`: passes over many tokens at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

from lilliput.bench.crowd import BusyCore
from lilliput.bench.prefill import measure_prefill, reserve_for
from lilliput.cli import options
from lilliput.cli.bench_tables import met, rounds, show_busy, show_splits
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.main import exit_code_of
from lilliput.cli.tables import console, table
from lilliput.engine.engine import Engine, choose_machine
from lilliput.engine.report import facts, in_short
from lilliput.engine.source import Source
from lilliput.errors import DoesNotFitError
from lilliput.machine.memory import format_size


@click.command("prefill", cls=options.Verb)
@click.argument("model")
@click.option("--tokens", default="1,8,64,512,2048", show_default=True, metavar="N,...", help="Lengths of the passes.")
@click.option("--repeats", type=int, default=3, show_default=True, metavar="N", help="Rounds.")
@click.option("--same-ids", is_flag=True, help="Play the same ids in every round: their experts stay in memory, where they fit.")
@click.option("--busy-core", is_flag=True, help="Play every pass again while another process keeps one of our processors busy.")
@options.memory
@options.machine
@options.reporting
def prefill(
    model: str,
    tokens: str,
    repeats: int,
    same_ids: bool,
    busy_core: bool,
    memory: options.Memory,
    threads: int | None,
    isa: str | None,
    layers: int | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Time single passes of 1 to 2,048 tokens: tokens per second, share of the peak, memory per token, time by kernel.

    A pass is played whole, however long, so --memory has to hold it. With --layers the speed is also scaled to all layers by their
    arithmetic. A pass of one token is a step of decoding. Ctrl-C keeps what has been measured.
    """
    terminal = Terminal(quiet=quiet, verbose=verbose)
    lengths = options.whole_numbers(tokens, "--tokens")
    source = Source(model, layers=layers)
    reserve = reserve_for(source.config, max(lengths), choose_machine(threads, isa)[0])
    try:
        opened = Engine(
            source,
            budget=memory.budget,
            context=max(lengths),
            prompt=1,
            trunk=memory.trunk,
            every_read=memory.every_read,
            reserve=reserve,
            threads=threads,
            isa=isa,
        )
    except DoesNotFitError as error:
        if not reserve:
            raise
        raise DoesNotFitError(
            f"{error}; the pass of {max(lengths):,} tokens takes {format_size(reserve)} of it: try fewer --tokens"
        ) from error
    with opened as engine:
        with terminal.job_progress("measuring") as progress, BusyCore() if busy_core else nullcontext() as busy:
            found = measure_prefill(engine, lengths, repeats=repeats, same_ids=same_ids, busy=busy, progress=progress)
        about = {key: value for key, value in facts(engine).items() if key != "run"}
        terminal.detail(in_short(engine))
        report = {"command": "bench prefill", "model": model, **found.as_dict(), **about}
    write_json(json_file, report)
    if json_file != "-":
        _show(report)
    if found.interrupt is not None:
        terminal.note("interrupted: what was measured before is kept")
    return exit_code_of(found.interrupt)


def _show(report: dict[str, Any]) -> None:
    out = console()
    out.print(
        f"{report['layers']} layers, trunk {report['trunk']}, {format_size(report['budget_bytes'])} of memory, {report['isa']}, "
        f"{report['threads']} threads, {rounds(report['rounds'])}; medians, lowest and highest"
    )
    show_busy(out, report["processor_granted"], report["threads"])
    shown = table("tokens", "s", "lowest", "highest", "tokens/s", "GFLOP/s", "of peak", "bytes/token", "planned")
    for row in report["passes"]:
        seconds = [f"{row['seconds'][which]:.4g}" for which in ("median", "lowest", "highest")]
        rates = [f"{row[name]['median']:.4g}" for name in ("tokens_per_s", "gflop_per_s")]
        memory = [f"{row[name]:,.0f}" for name in ("bytes_per_token", "planned_bytes_per_token")]
        shown.add_row(str(row["tokens"]), *seconds, *rates, f"{row['share_of_peak']['median']:.3f}", *memory)
    out.print(shown)
    for row in report["passes"]:
        if row["scaled"]:
            scaled = row["scaled"]
            out.print(
                f"{row['tokens']} tokens, scaled to {scaled['layers']} layers by arithmetic (x {scaled['factor']:.3g}): "
                f"{scaled['tokens_per_s']:.4g} tokens/s",
            )
        if row["busy_core"]:
            slower = row["busy_core"]
            out.print(
                f"{row['tokens']} token{'s' * (row['tokens'] != 1)} beside a busy core: {slower['median']:.2f} times as long "
                f"({slower['lowest']:.2f}-{slower['highest']:.2f}); in proportion is {slower['in_proportion']:.2f}",
            )
        if "decode" in row:
            decode = row["decode"]
            out.print(f"decoding: {decode['seconds']:.3g} s per token, at most {decode['at_most']:g}: {met(decode['met'])}")
    out.print()
    show_splits(out, [str(row["tokens"]) for row in report["passes"]], [row["split"] for row in report["passes"]])
