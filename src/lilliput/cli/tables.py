"""Tables and sentences on stdout, where the result is one for people."""

from __future__ import annotations

import sys
from collections.abc import Collection

from rich.console import Console
from rich.table import Table

WIDTH = 160  # in a file or a pipe: wide enough for every table


def console() -> Console:
    """stdout. What is printed stands there as it is: the name of a directory may hold brackets and colons."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)


def table(*columns: str, left: Collection[int] = (0,)) -> Table:
    """A plain table: the columns `left` to the left, and numbers to the right."""
    made = Table(*columns, box=None, header_style="bold")
    for number, column in enumerate(made.columns):
        column.justify = "left" if number in left else "right"
    return made
