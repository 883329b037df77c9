"""Prints the findings on a pair for people. Used by `speculative check` and by the demo.

On a terminal a finding has three cells, each of several lines, so that 80 columns hold it without a broken word. In a
pipe it is one line with a column for each of its parts, to be cut and searched.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from speculative_operator.cli import tables

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("level", "code", "field", "verifier", "speculator", "message", "remedy")
"""Parts of a finding, as `pairing.report.to_json` names them."""

Told = Mapping[str, str]


def write(out: TextIO, findings: Sequence[Told]) -> None:
    """Write all findings, in their order; `-` where a part has no value."""
    if out.isatty():
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            Console(file=out, no_color="NO_COLOR" in os.environ).print(table(findings))
            return
    headers = [name.upper() for name in COLUMNS]
    tables.write(out, headers, [[one.get(name) or "-" for name in COLUMNS] for one in findings])


def table(findings: Sequence[Told]) -> Table:
    """The findings as a table for a `rich` console. Raises ImportError without `rich`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("Level", no_wrap=True)
    made.add_column("Field and values", ratio=5, overflow="fold")
    made.add_column("What is wrong, and the remedy", ratio=6, overflow="fold")
    for place, one in enumerate(findings):
        cells = (one.get("level", ""), _values(one), _words(one))
        made.add_row(*(Text(cell) for cell in cells), end_section=place < len(findings) - 1)
    return made


def _values(one: Told) -> str:
    values = [f"{side}: {one[side]}" for side in ("verifier", "speculator") if one.get(side)]
    return "\n".join([one.get("code", ""), one.get("field", ""), *values])


def _words(one: Told) -> str:
    message, remedy = one.get("message", ""), one.get("remedy", "")
    return f"{message[:1].upper()}{message[1:]}." + (f"\n{remedy[:1].upper()}{remedy[1:]}." if remedy else "")
