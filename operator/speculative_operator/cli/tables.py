"""Tables on a terminal and in a pipe. Used by every command that prints one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

Row = Sequence[str]


def write(out: TextIO, headers: Row, rows: Sequence[Row], numbers: frozenset[int] = frozenset()) -> None:
    """A table with its headers; columns `numbers` are flush right.

    On a terminal, where `rich` is installed, with its lines and as wide as that is; otherwise aligned by spaces, so
    that it can be cut and searched. Cells are printed whole and as they are, never as markup.
    """
    if out.isatty() and _rich(out, headers, rows, numbers):
        return
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.write("  ".join(cells).rstrip() + "\n")


def _rich(out: TextIO, headers: Row, rows: Sequence[Row], numbers: frozenset[int]) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, header in enumerate(headers):
        table.add_column(Text(header), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=out, no_color="NO_COLOR" in os.environ).print(table)
    return True
