"""`lilliput inspect`: what a checkpoint holds."""

from __future__ import annotations

import click

from lilliput.cli import options
from lilliput.cli.console import write_json
from lilliput.cli.tables import console, table
from lilliput.engine.census import GROUPS, Census, take_census


@click.command(cls=options.Verb)
@click.argument("model")
@options.json_option
def inspect(model: str, json_file: str | None) -> None:
    """Count a checkpoint's tensors, parameters and bytes, and say which of them are streamed."""
    census = take_census(model)
    write_json(json_file, census.as_dict())
    if json_file != "-":
        _show(census)


def _show(census: Census) -> None:
    out = console()
    shown = table("part", "tensors", "parameters", "bytes", "streamed")
    for line in [*census.lines, census.total]:
        streamed = f"{line.streamed:,}" if line.streamed else "resident" if line.part in GROUPS else "not run"
        shown.add_row(line.part, f"{line.tensors:,}", f"{line.parameters:,}", f"{line.nbytes:,}", streamed)
    kinds = f"{census.kda_layers} KDA, {census.layers - census.kda_layers} MLA"
    out.print(f"{census.directory}: {census.layers} layers ({kinds}), {census.shards} shards")
    out.print(shown)
    out.print(f"trunk {census.trunk_parameters:,} parameters; tape {census.tape_bytes:,} bytes; one expert {census.expert_bytes:,} bytes")
