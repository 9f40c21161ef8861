"""`lilliput logits`: reference outputs; `lilliput compare`: how far two of them are apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from lilliput.cli import options
from lilliput.cli.console import Terminal, write_json, write_npy
from lilliput.compare import Comparison, compare_files
from lilliput.engine.engine import Engine
from lilliput.engine.planning import ids_of_prompt
from lilliput.engine.report import facts, in_short, peak_rss
from lilliput.engine.source import Source


@click.command(cls=options.Verb)
@click.argument("model")
@options.prompt_source
@click.option("--all", "every", is_flag=True, help="Logits at every position, not only the last.")
@click.option(
    "-o", "--output", required=True, type=options.Output(), metavar="F.npy", help="Where the float32 array [positions, vocabulary] goes."
)
@options.memory
@options.machine
@options.reporting
def logits(
    model: str,
    prompt: str | None,
    prompt_file: str | None,
    ids: list[int] | None,
    every: bool,
    output: str,
    memory: options.Memory,
    threads: int | None,
    isa: str | None,
    layers: int | None,
    json_file: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Run the model over given tokens (teacher forcing) and save the logits."""
    terminal = Terminal(quiet=quiet, verbose=verbose)
    source = options.read_prompt(prompt, prompt_file, ids)
    checked = Source(model, layers=layers)
    tokens = ids_of_prompt(checked, source, memory.budget)
    n = max(len(tokens), 1)
    with Engine(
        checked,
        budget=memory.budget,
        context=n,
        prompt=n,
        all_logits=every,
        trunk=memory.trunk,
        every_read=memory.every_read,
        threads=threads,
        isa=isa,
    ) as engine:
        path = Path(output)
        with terminal.pass_progress(engine):
            if every:
                shape = (len(tokens), engine.config.vocab_size)
                write_npy(path, shape, engine.logits(tokens))
            else:
                session = engine.session()
                session.append(tokens)
                shape = (1, engine.config.vocab_size)
                write_npy(path, shape, [session.logits()[None]])
        write_json(json_file, {"command": "logits", "ids": tokens, "shape": shape, "output": str(path), **facts(engine)})
        terminal.note(f"{path}: float32 {list(shape)}; peak RSS {peak_rss() / 1e9:.2f} GB")
        terminal.detail(in_short(engine))


@click.command(cls=options.Verb)
@click.argument("a", type=options.Input())
@click.argument("b", type=options.Input())
@click.option("--atol", type=float, default=0.0, show_default=True, help="Largest absolute difference that passes.")
@click.option("--rtol", type=float, default=0.0, show_default=True, help="Largest difference relative to B that passes.")
@options.json_option
def compare(a: Path, b: Path, atol: float, rtol: float, json_file: str | None) -> None:
    """Compare two arrays of logits; exit code 1 where they differ by more than --atol + --rtol · |B|."""
    comparison = compare_files(a, b, atol, rtol)
    write_json(json_file, {"command": "compare", "a": str(a), "b": str(b), **asdict(comparison)})
    if json_file != "-":
        click.echo("\n".join(_lines(comparison)))
    comparison.check()


def _lines(c: Comparison) -> Iterator[str]:
    yield f"{c.rows} rows of {c.columns} ({c.dtype}); " + ("the same bits" if c.same_bits else f"{c.differing} values differ")
    correlation = "undefined" if c.correlation is None else f"{c.correlation:.9f}"
    yield f"difference: max {c.max_abs:g}, mean {c.mean_abs:g}; correlation {correlation}"
    overlap = "undefined" if c.top_overlap is None else f"{100 * c.top_overlap:.2f} %"
    yield f"argmax equal in {c.argmax_equal} of {c.rows} rows; top-{c.top} overlap {overlap}"
    if c.first_differing_row is not None:
        yield f"first differing row: {c.first_differing_row}"
    if any(c.not_finite):
        yield f"not finite: {c.not_finite[0]} values in A, {c.not_finite[1]} in B"
