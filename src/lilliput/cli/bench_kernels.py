"""`lilliput bench kernels`: every kernel beside what it cannot beat and what others reach."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from lilliput.bench.facts import about_machine, k3
from lilliput.bench.kernels.measure import KERNELS, measure_kernels
from lilliput.bench.rates import beyond_caches
from lilliput.cli import options
from lilliput.cli.bench_tables import bound, met, rounds, show_busy
from lilliput.cli.console import Terminal, write_json
from lilliput.cli.main import exit_code_of
from lilliput.cli.tables import console, table
from lilliput.machine.memory import format_size, parse_size
from lilliput.machine.threads import default_threads

RATIOS = ("read", "copy", "peak", "one token", "doubles", "numpy", "torch")
TITLES = {"read": "of read", "copy": "of copy", "peak": "of peak", "one token": "x 1 token"}


@click.command("kernels", cls=options.Verb)
@click.option("--kernels", metavar="NAME,...", help=f"Which; default all: {', '.join(KERNELS)}.")
@click.option("--size", default="1GB", show_default=True, metavar="SIZE", help="Weights of each kernel; three to four times that is taken.")
@click.option("-t", "--threads", metavar="N,...", help="Numbers of threads; default: 1 and what affinity, quota and cores allow.")
@click.option("--isa", metavar="NAME,...", help="Instruction sets; default: all of this machine with vectors.")
@click.option("--repeats", type=int, default=7, show_default=True, metavar="N", help="Rounds.")
@options.reporting
def kernels(kernels: str | None, size: str, threads: str | None, isa: str | None, repeats: int, json_file: str | None, quiet: bool) -> int:
    """Time every kernel at Kimi K3's shapes against a plain read, the peak of multiply-adds, sums in doubles, numpy and torch.

    All in one process, in rounds; each figure is the median of the ratio within a round. Weights are too large for caches. The digests
    of all outputs must be the same on every instruction set with any number of threads. Ctrl-C keeps what has been measured.
    """
    weights = parse_size(size, "--size")
    terminal = Terminal(quiet=quiet)
    if weights < (needed := beyond_caches()):
        terminal.note(
            f"--size {size}: below {format_size(needed)} the caches of this machine hold the weights, and ratios to reading mean little"
        )
    with terminal.job_progress("measuring") as progress:
        found = measure_kernels(
            k3(),
            kernels=options.names(kernels, "--kernels") or KERNELS,
            size=weights,
            isas=options.names(isa, "--isa"),
            threads=options.whole_numbers(threads, "--threads") or sorted({1, default_threads()}),
            repeats=repeats,
            progress=progress,
        )
    report = {"command": "bench kernels", "machine": about_machine(), **found.as_dict()}
    write_json(json_file, report)
    if json_file != "-":
        _show(report)
    if found.interrupt is not None:
        terminal.note("interrupted: what was measured before is kept")
    verdict = found.verdict()
    if verdict is not None:
        raise verdict
    return exit_code_of(found.interrupt)


def _show(report: dict[str, Any]) -> None:
    out = console()
    machine = report["machine"]
    out.print(
        f"{machine['cpu'] or 'processor unknown'}, {machine['cpus']} CPUs; {format_size(report['size_bytes'])} of weights per kernel, "
        f"{rounds(report['rounds'])}; medians",
    )
    for why in report["left_out"]:
        out.print(why)
    for row in report["processor_granted"]:
        show_busy(out, row["share"], row["threads"])
    for shown in (_limits(report["yardsticks"]), _ratios(report["kernels"]), _targets(report["kernels"])):
        out.print(shown)
        out.print()
    for row in report["decode"]:
        seconds = ", ".join(f"{name} {value:.4g}" for name, value in row["seconds"].items())
        out.print(
            f"a decode pass without attention ({row['isa']}, {row['threads']} thread{'s' * (row['threads'] != 1)}), seconds: {seconds}; "
            f"all but weights and states {100 * row['share']:.2f} % (at most {100 * row['at_most']:g} %: {met(row['met'])})",
        )
    for row in report["digests"]:
        seen = sorted({made["digest"] for made in row["digests"]})
        makers = f"{len(row['digests'])} runs agree" if len(seen) == 1 else f"{len(row['digests'])} runs DIFFER"
        kernels = ", ".join(dict.fromkeys(made["kernel"] for made in row["digests"]))
        out.print(f"{kernels}, {row['tokens']} token{'s' * (row['tokens'] != 1)}: {' '.join(seen)} ({makers})")


def _number(found: dict[str, float] | None) -> str:
    return f"{found['median']:.3g}" if found else ""


def _setting(row: dict[str, Any]) -> list[str]:
    return [row["kernel"], str(row["tokens"] or ""), str(row["threads"]), row["isa"] or ""]


def _limits(rows: list[dict[str, Any]]) -> Table:
    shown = table("yardstick", "tokens", "threads", "isa", "beside", "GB/s", "GFLOP/s")
    for row in rows:
        shown.add_row(*_setting(row), row["group"], _number(row["gb_per_s"]), _number(row["gflop_per_s"]))
    return shown


def _ratios(rows: list[dict[str, Any]]) -> Table:
    shown = table("kernel", "tokens", "threads", "isa", "ms", "GB/s", "GFLOP/s", *(TITLES.get(r, f"x {r}") for r in RATIOS))
    for row in rows:
        ratios = [_number(row["ratios"].get(name)) for name in RATIOS]
        milliseconds = f"{1000 * row['seconds']['median']:.3g}"
        shown.add_row(*_setting(row), milliseconds, _number(row["gb_per_s"]), _number(row["gflop_per_s"]), *ratios)
    return shown


def _targets(rows: list[dict[str, Any]]) -> Table:
    shown = table("kernel", "tokens", "threads", "isa", "ratio", "median", "lowest", "highest", "target", "")
    for row in rows:
        for name, found in row["ratios"].items():
            target = bound(found)
            if target is not None:
                numbers = [f"{found[which]:.3f}" for which in ("median", "lowest", "highest")]
                shown.add_row(*_setting(row), TITLES.get(name, f"x {name}"), *numbers, target, met(found["met"]))
    return shown
