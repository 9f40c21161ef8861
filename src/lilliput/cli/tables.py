"""Tables and sentences on stdout, where the result is one for people."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.table import Table

WIDTH = 160  # wide enough for every table, whatever the terminal or COLUMNS says: a narrower one wraps lines, and cuts no number


def console() -> Console:
    """stdout. What is printed stands there as it is: the name of a directory may hold brackets and colons."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=WIDTH)


def table(*columns: str, left: Collection[int] = (0,)) -> Table:
    """A plain table: the columns `left` to the left, and numbers to the right."""
    made = Table(*columns, box=None, header_style="bold")
    for number, column in enumerate(made.columns):
        column.justify = "left" if number in left else "right"
    return made
