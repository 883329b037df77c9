"""Tables on a terminal and in a pipe. Used by every command that prints one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import TextIO

Row = Sequence[str]

_APART = 2
"""Blanks between two columns."""
_NOTHING = ("", "-")
"""Cells without a value."""


def write(out: TextIO, headers: Row, rows: Sequence[Row], numbers: frozenset[int] = frozenset()) -> None:
    """Write a table with its headers; columns `numbers` are flush right.

    On a terminal, where `rich` is installed, the table has lines and the terminal's width; otherwise it is aligned by
    spaces, so that it can be cut and searched. Where a terminal would break words, cells that have no place in the row
    stand below it, each whole on a line, so that names and addresses can be copied. Cells are printed as they are,
    never as markup.
    """
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    shown, room = len(headers), shutil.get_terminal_size().columns
    if out.isatty():
        if _least(headers, rows) <= room and _rich(out, headers, rows, numbers):
            return
        ends = [sum(widths[: column + 1]) + _APART * column for column in range(len(widths))]
        shown = max(1, sum(end <= room for end in ends))
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row[:shown], widths, strict=False))
        ]
        out.write((" " * _APART).join(cells).rstrip() + "\n")
        for line in _below(headers[shown:], row[shown:], room) if row is not headers else ():
            out.write(f"    {line}\n")


def _below(headers: Row, cells: Row, room: int) -> Iterator[str]:
    """Yield lines of cells with their headers, as many on a line as fit; cells without a value are left out."""
    line = ""
    for told in (f"{header}: {cell}" for header, cell in zip(headers, cells, strict=True) if cell not in _NOTHING):
        if line and len(line) + len(told) + 6 > room:
            yield line
            line = ""
        line += f"; {told}" if line else told
    if line:
        yield line


def _least(headers: Row, rows: Sequence[Row]) -> int:
    """Least columns of a terminal in which no word of the table is broken."""
    words = ([word for row in (headers, *rows) for word in row[column].split()] for column in range(len(headers)))
    return sum(max(map(len, found), default=0) for found in words) + 3 * len(headers)


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
