"""`lilliput simulate`: what expert caches of different sizes would have hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lilliput.cli import options, picture
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.tables import console, table
from lilliput.machine.memory import format_size, parse_size
from lilliput.simulate import EXPERT_BYTES, Simulation
from lilliput.simulate import simulate as run_simulation
from lilliput.trace import TOP_K, read_trace
from lilliput.weights.policy import DEFAULT

SIZES = "1GB,2GB,4GB,8GB,16GB,24GB,32GB,48GB,64GB"


@click.command(cls=options.Verb)
@click.argument("trace", type=options.Input())
@click.option("--sizes", default=SIZES, show_default=True, metavar="SIZE,...", help="Memory for experts.")
@click.option("--unroll", is_flag=True, help="Replay every token as a pass of its own; prefixes computed again are left out.")
@click.option(
    "--top-k", type=click.IntRange(min=1), metavar="N", help=f"Experts per token and layer.  [default: the trace's, else {TOP_K}]"
)
@click.option("--expert-size", metavar="SIZE", help=f"Memory per expert.  [default: the trace's, else {EXPERT_BYTES}B]")
@click.option("--plot", "plot_file", type=options.Output(), metavar="FILE.png", help="Draw it (extra `plot`; also .svg, .pdf).")
@options.reporting
def simulate(
    trace: Path,
    sizes: str,
    unroll: bool,
    top_k: int | None,
    expert_size: str | None,
    plot_file: str | None,
    json_file: str | None,
    quiet: bool,
) -> None:
    """Replay the expert requests recorded in TRACE (`--trace-experts`) under every policy and size.

    Hit rates are in percent of the experts asked for; the first use of an expert cannot hit. `belady` is what a cache that
    knows the future would get: no policy can do better. A trace says of which model it is, but for ones in the format of the
    released trace: those are taken for K3's.
    """
    asked = options.sizes(sizes, "--sizes")
    given = parse_size(expert_size, "--expert-size") if expert_size is not None else None
    pyplot = picture.pyplot(plot_file) if plot_file else None
    recorded = read_trace(trace, top_k)
    if unroll:
        recorded = recorded.unrolled()
    expert_bytes = given or recorded.expert_bytes or EXPERT_BYTES
    terminal = Terminal(quiet=quiet)
    if recorded.expert_bytes not in (None, expert_bytes):
        terminal.note(f"--expert-size {expert_size}: replayed so, but an expert of the recorded model took {recorded.expert_bytes:,} bytes")
    with terminal.job_progress("replaying") as progress:
        simulation = run_simulation(recorded, asked, expert_bytes, progress=progress)
    report = {
        "command": "simulate",
        "trace": str(trace),
        "unrolled": unroll,
        "default_policy": DEFAULT,
        "recorded_expert_bytes": recorded.expert_bytes,
    }
    write_json(json_file, report | simulation.as_dict())
    if json_file != "-":
        _show(simulation)
    if plot_file:
        picture.save(pyplot, _draw(pyplot, simulation), plot_file)
        terminal.note(f"{plot_file}: written")


def _show(simulation: Simulation) -> None:
    out = console()
    out.print(
        f"{simulation.passes:,} passes, {simulation.tokens:,} tokens, {simulation.requests:,} requests for {simulation.distinct:,} experts"
        f" of {format_size(simulation.expert_bytes)}; first uses {100 * simulation.rate(simulation.distinct):.1f} %"
    )
    names = list(simulation.rows[0].hits)
    shown = table("memory", "experts", *names, "belady", left=())
    for row in simulation.rows:
        rates = [f"{100 * simulation.rate(hits):.1f}" for hits in [*row.hits.values(), row.belady]]
        shown.add_row(format_size(row.size), f"{row.capacity:,}", *rates)
    out.print(shown)
    out.print(f"hits in percent; the default policy is {DEFAULT}")
    enough = simulation.distinct * simulation.expert_bytes
    if len(simulation.rows) > 1 and min(row.size for row in simulation.rows) >= enough:
        out.print(f"every size holds all experts of the trace, which take {format_size(enough)}: give smaller --sizes")


def _draw(pyplot: Any, simulation: Simulation) -> Any:
    """The figure. `pyplot` comes from matplotlib."""
    gigabyte = 1e9
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    rows = sorted(simulation.rows, key=lambda row: row.size)
    sizes = [row.size / gigabyte for row in rows]
    axes.plot(sizes, [100 * simulation.rate(row.belady) for row in rows], "k--", marker=".", label="belady (knows the future)")
    for name in rows[0].hits:
        style: dict[str, Any] = {"linewidth": 2.5} if name == DEFAULT else {"linewidth": 1}
        axes.plot(sizes, [100 * simulation.rate(row.hits[name]) for row in rows], marker=".", label=name, **style)
    curve = simulation.lru_curve[: rows[-1].size // simulation.expert_bytes + 1]
    at = [capacity * simulation.expert_bytes / gigabyte for capacity in range(len(curve))]
    axes.plot(at, 100 * curve, color="0.7", linewidth=0.8, zorder=0, label="plain LRU at every capacity")
    axes.set(xlabel="memory for experts (GB)", ylabel="hits (%)", ylim=(0, None), xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
