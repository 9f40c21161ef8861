"""`lilliput inspect`: what a checkpoint holds."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from lilliput.cli import options
from lilliput.cli.console import write_json
from lilliput.engine.census import GROUPS, Census, take_census


@click.command()
@click.argument("model")
@options.json_option
def inspect(model: str, json_file: str | None) -> None:
    """Count a checkpoint's tensors, parameters and bytes, and say which of them are streamed."""
    census = take_census(model)
    write_json(json_file, census.as_dict())
    if json_file != "-":
        _show(census)


def _show(census: Census) -> None:
    console = Console(highlight=False)
    table = Table("part", "tensors", "parameters", "bytes", "streamed", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in [*census.lines, census.total]:
        streamed = f"{line.streamed:,}" if line.streamed else "resident" if line.part in GROUPS else "not run"
        table.add_row(line.part, f"{line.tensors:,}", f"{line.parameters:,}", f"{line.nbytes:,}", streamed)
    kinds = f"{census.kda_layers} KDA, {census.layers - census.kda_layers} MLA"
    console.print(f"{census.directory}: {census.layers} layers ({kinds}), {census.shards} shards", soft_wrap=True)
    console.print(table)
    console.print(
        f"trunk {census.trunk_parameters:,} parameters; tape {census.tape_bytes:,} bytes; one expert {census.expert_bytes:,} bytes",
        soft_wrap=True,
    )
