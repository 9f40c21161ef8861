"""A ladder as JSON, CSV, Markdown and a picture."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from lilliput.bench.facts import about_machine
from lilliput.bench.ladder import Ladder, Rung
from lilliput.machine.memory import format_size

STORED = 0.95  # of a checkpoint's bytes; below that it is sparse
GB = 1e9


def _machine(ladder: Ladder) -> dict[str, Any]:
    """What the numbers depend on."""
    return {**about_machine(), "ceiling": ladder.kind, "swap": "off below the ceiling"}


def about_files(directory: Path) -> dict[str, Any]:
    """Bytes of the shards, and how many of them are on disk."""
    found = [file.stat() for file in directory.glob("*.safetensors")]
    size, stored = sum(s.st_size for s in found), sum(s.st_blocks * 512 for s in found)
    return {"bytes": size, "bytes_stored": stored, "sparse": stored < STORED * size}


def as_json(ladder: Ladder, directory: Path) -> dict[str, Any]:
    return {
        "command": "bench ladder",
        "checkpoint": str(directory),
        "prompt_ids": ladder.ids,
        "tokens": ladder.tokens,
        "repeats": ladder.repeats,
        "ids": next((rung.ids[0] for rung in ladder.rungs if rung.ids), None),
        "ids_identical": len({tuple(ids) for rung in ladder.rungs for ids in rung.ids}) == 1,
        "interrupted": ladder.interrupt is not None,
        "another_engine": str(ladder.busy) if ladder.busy else None,
        "machine": _machine(ladder),
        "files": about_files(directory),
        "run": ladder.about,
        "rungs": [rung.as_dict() for rung in ladder.rungs],
    }


COLUMNS = (
    *("memory", "status", "runs", "s/token", "lowest", "highest", "first token s"),
    *("GB/token", "expert hits %", "peak RSS GB", "plan GB"),
)


def cells(rung: Rung) -> list[str]:
    """One row under COLUMNS; empty where nothing was measured."""
    found = rung.as_dict()
    s = found["seconds_per_token"] or {}

    def shown(value: float | None, form: str, factor: float = 1) -> str:
        return "" if value is None else format(value * factor, form)

    return [
        found["memory"],
        found["status"],
        str(found["runs"]),
        *(shown(s.get(name), ".4g") for name in ("median", "lowest", "highest")),
        shown(found["first_token_s"], ".4g"),
        shown(found["bytes_read_per_token"], ".4g", 1 / GB),
        shown(found["expert_hits"], ".1f", 100),
        shown(found["peak_rss_bytes"], ".3f", 1 / GB),
        shown(found["plan_total_bytes"], ".3f", 1 / GB),
    ]


def as_csv(ladder: Ladder) -> str:
    """A line of names, then one per rung, with the reason of a rung that did not run at the end."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "reason"])
    writer.writerows([*cells(rung), rung.reason] for rung in ladder.rungs)
    return out.getvalue()


def as_markdown(ladder: Ladder, directory: Path) -> str:
    """A page: what was run where, the table, what went wrong, and how to read it."""
    report = as_json(ladder, directory)
    machine, files, run = report["machine"], report["files"], report["run"]
    kind = "virtual machine" if machine["virtual"] else "machine"
    cpu = f" ({machine['cpu']})" if machine["cpu"] else ""
    ids = ",".join(map(str, ladder.ids))
    lines = [
        "# Memory ladder",
        "",
        f"Made by `lilliput bench ladder MODEL {_command(ladder)}`.",
        "Each rung is `lilliput generate` in a process of its own, given the rung as `--memory`, below a ceiling of the same size that the",
        f"kernel enforces ({machine['ceiling'] or 'none was made'}), swap off.",
        "",
        f"- Model: {run.get('layers', '?')} layers, {files['bytes'] / GB:,.1f} GB of shards, trunk {run.get('trunk', '?')}; "
        f"prompt ids {ids}, {ladder.tokens} tokens, {ladder.repeats} run{'s' * (ladder.repeats > 1)} per rung, greedy.",
        f"- Machine: {kind}{cpu}, {machine['cpus']} CPUs, {format_size(machine['memory_bytes'])} of memory; "
        f"{run.get('threads', '?')} threads, {run.get('isa', '?')}.",
        f"- Ids: {_ids(report)}",
    ]
    if files["sparse"]:
        lines.append(
            f"- The checkpoint is sparse: {files['bytes_stored'] / GB:.2f} of {files['bytes'] / GB:,.1f} GB are on disk. Holes are read at"
            " the speed of memory, so the times show computing and overhead, not a disk; bytes, hits and memory are those of full shards."
        )
    if ladder.interrupt is not None:
        lines.append("- Interrupted: rungs that were not reached are missing.")
    if ladder.busy is not None:
        lines.append("- Ended by another engine on the machine: rungs that were not reached are missing.")
    lines += ["", f"| {' | '.join(COLUMNS)} |", f"|{'|'.join(['---:', '---', *['---:'] * (len(COLUMNS) - 2)])}|"]
    lines += [f"| {' | '.join(cells(rung))} |" for rung in ladder.rungs if rung.status != "waiting"]
    reasons = [f"- {format_size(rung.nbytes)}: {rung.reason}" for rung in ladder.rungs if rung.reason]
    lines += ["", *reasons, ""] if reasons else [""]
    lines += [
        "`s/token` is the median over all tokens behind the first, of all runs; the first includes the prompt and the reading of pins.",
        "`GB/token` is what was read for a token's own pass, alignment included; a hit is an expert that cost no read. GB = 10^9 bytes.",
    ]
    return "\n".join(lines) + "\n"


def _command(ladder: Ladder) -> str:
    """The options to measure the same again."""
    rungs, ids = (",".join(map(str, values)) for values in ([format_size(rung.nbytes) for rung in ladder.rungs], ladder.ids))
    return f"--rungs {rungs} --ids {ids} -n {ladder.tokens} --repeats {ladder.repeats}"


def draw(pyplot: Any, ladder: Ladder) -> Any:
    """A figure: seconds and GB per token over memory. `pyplot` comes from matplotlib."""
    ran = [rung for rung in (rung.as_dict() for rung in ladder.rungs) if rung["seconds_per_token"]]
    memory = [rung["memory_bytes"] / GB for rung in ran]
    middle = [rung["seconds_per_token"]["median"] for rung in ran]
    below = [m - rung["seconds_per_token"]["lowest"] for m, rung in zip(middle, ran, strict=True)]
    above = [rung["seconds_per_token"]["highest"] - m for m, rung in zip(middle, ran, strict=True)]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    axes.errorbar(memory, middle, yerr=[below, above], marker="o", capsize=3, label="seconds per token (median, lowest, highest)")
    axes.set(xlabel="memory (GB)", ylabel="seconds per token", ylim=(0, None), xlim=(0, None))
    axes.grid(alpha=0.3)
    other = axes.twinx()
    read = [rung["bytes_read_per_token"] / GB for rung in ran]
    other.plot(memory, read, color="C1", marker=".", linestyle="--", label="GB read per token")
    other.set(ylabel="GB read per token", ylim=(0, None))
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _ids(report: dict[str, Any]) -> str:
    if report["ids"] is None:
        return "none, because no rung ran."
    if not report["ids_identical"]:
        return "**different from rung to rung, which must never be.**"
    return f"identical in all runs ({','.join(map(str, report['ids']))})."
