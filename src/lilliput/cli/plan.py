"""`lilliput plan`: where every byte of the memory goes, and what a token will cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from lilliput.bench.rates import measure_rates
from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.tables import console, table
from lilliput.engine.engine import DEFAULT_CONTEXT, choose_machine, use_machine
from lilliput.engine.planning import Prospect, plan_model
from lilliput.engine.source import Source
from lilliput.errors import DoesNotFitError, UsageError
from lilliput.machine.costs import ASSUMED, Rates
from lilliput.machine.free import own_memory, refuse_overdraft
from lilliput.machine.memory import format_size, tightest
from lilliput.machine.plan import MOST_CONTEXT, MOST_SEQUENCES, Plan


@click.command(cls=options.Verb)
@click.argument("model")
@click.option(
    "--batch", type=click.IntRange(1, MOST_SEQUENCES), default=1, show_default=True, metavar="N", help="Sequences generated at a time."
)
@click.option(
    "-c",
    "--context",
    type=click.IntRange(1, MOST_CONTEXT),
    default=DEFAULT_CONTEXT,
    show_default=True,
    metavar="N",
    help="Positions per sequence.",
)
@click.option("--prompt", type=click.IntRange(min=1), metavar="N", help="How many of them are prompt.  [default: half]")
@click.option("--measure", is_flag=True, help="Measure this machine's speed again.")
@options.memory
@options.machine
@options.reporting
def plan(
    model: str,
    batch: int,
    context: int,
    prompt: int | None,
    measure: bool,
    memory: options.Memory,
    threads: int | None,
    isa: str | None,
    layers: int | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Show what MODEL would do with a budget, without allocating it.

    Bytes read per pass are exact, hit rates and seconds are estimates. A budget larger than this machine can be planned for, too:
    the speeds are those of this machine.
    """
    terminal = Terminal(quiet=quiet, verbose=verbose)
    if memory.every_read:
        raise UsageError("--check-every-read: needed by verbs that run the model; this one reads no pieces")
    if prompt is not None and prompt > context:
        raise UsageError(f"--prompt: needed at most --context, {context:,} positions, found {prompt:,}")
    machine = choose_machine(threads, isa)
    use_machine(*machine)
    prospect = Prospect(Source(model, layers=layers), threads=machine[0], trunk=memory.trunk)
    free, own = tightest(), own_memory()  # before measuring, which takes memory for a moment
    terminal.detail(
        f"{prospect.source.directory}: {prospect.source.config.num_layers} layers; {machine[1]}, {machine[0]} threads; "
        f"free here: {format_size(free.nbytes)} ({free.name}), and {format_size(own)} that this process has"
    )

    def planned(rates: Rates) -> Plan:
        return plan_model(prospect, memory.budget, free, own, batch=batch, context=context, prompt=prompt, rates=rates)

    rates = None if measure else prospect.rates()
    if rates is None:
        planned(ASSUMED)  # what does not fit does so at any speed, and measuring takes many seconds
        rates = measure_rates(prospect.tape.paths, prospect.tape.kind, prospect.source.checkpoint.files)
    made = planned(rates)
    report = as_dict(made, prospect)
    try:
        refuse_overdraft(made, free, own)
    except DoesNotFitError as error:
        report["here"] = str(error)
        terminal.note(f"this machine could not run it: {error}")
    write_json(json_file, report)
    if json_file != "-":
        _show(made, prospect)


def as_dict(plan: Plan, prospect: Prospect) -> dict[str, Any]:
    """Everything the plan says; `here`, if not None, why this machine cannot give the memory."""
    pinned = len(plan.pins)
    report = {name: value for name, value in asdict(plan).items() if name != "pins"}
    return {
        "command": "plan",
        "checkpoint": str(prospect.source.directory),
        "trunk": str(prospect.trunk) if prospect.trunk else None,
        **report,
        "total": plan.total,
        "pieces": len(prospect.tape.pieces),
        "pinned_pieces": pinned,
        "here": None,
    }


def _show(plan: Plan, prospect: Prospect) -> None:
    out = console()
    shown = table("memory for", "bytes", "", left=(0, 2))
    for line in plan.lines:
        shown.add_row(line.name, f"{line.nbytes:,}", line.note)
    shown.add_row("in all", f"{plan.total:,}", f"of {plan.budget:,} ({plan.source})", style="bold")
    out.print(shown)
    where = f"packed, {prospect.trunk}" if prospect.trunk else "in place, not packed"
    out.print(f"trunk ({where}): {plan.trunk_bytes_per_pass:,} bytes read per pass, at most {plan.chunk} prompt tokens per pass")
    out.print(f"experts: {format_size(round(plan.expert_bytes_per_token))} read per token (estimate)")
    each = f" with {plan.batch} sequences at a time" if plan.batch > 1 else ""
    out.print(f"expected: {plan.seconds_per_token:.3g} s per token{each}")
    rates = plan.rates
    speeds = [("disk", rates.disk_bytes_per_s), ("trunk", rates.trunk_bytes_per_s), ("experts", rates.expert_bytes_per_s)]
    out.print(", ".join(f"{name} {speed / 1e9:.3g} GB/s" for name, speed in speeds) + f": {rates.source}")
