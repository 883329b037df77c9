"""What commands print, on a terminal and in a pipe: the forms of `-o`, coloured lines, tables, and the findings on a
pair.

Used by every command that looks at a cluster or prints a table, by the demo, and by the pictures of docs/cli.md. Where
`rich` is not installed, all of it is plain text.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

TEXT, WIDE, JSON, YAML = "text", "wide", "json", "yaml"


def add_format(parser: argparse.ArgumentParser, wide: str = "") -> None:
    """Add the option `-o`; `wide` says what that form adds, for commands that have it."""
    forms = (TEXT, WIDE, JSON, YAML) if wide else (TEXT, JSON, YAML)
    adds = f"wide: {wide}; " if wide else ""
    parser.add_argument("-o", "--output", choices=forms, default=TEXT, help=f"{adds}json, yaml: for programs")


def format_document(value: Any, form: str) -> str:
    """`value` as one line of JSON, or as one YAML document."""
    if form == JSON:
        return json.dumps(value, allow_nan=False)
    import yaml

    return "---\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")


_STYLES = (
    (r"█+", "green"),
    (r"<- (load now|active)", "bold yellow"),
    (r"^ *(waits|warning|proposes|also|but|wrong)(?= )", "bold red"),
    (r"^ *[a-z]+(?=  |$)", "cyan"),
    (r"\+\d+\.\d ?%", "bold green"),
    (r"-\d+\.\d ?%", "bold red"),
)


def colour(line: str) -> Text:
    """One line of text with its colours. Raises ImportError without rich."""
    from rich.text import Text

    text = Text(line)
    for pattern, style in reversed(_STYLES):
        text.highlight_regex(pattern, style)
    return text


def write_coloured(out: TextIO, text: str) -> None:
    """Write lines; with colours where `out` is a terminal and rich is installed, unless NO_COLOR is set."""
    if out.isatty() and "NO_COLOR" not in os.environ:
        try:
            from rich.console import Console

            console = Console(file=out)
            for line in text.split("\n"):
                console.print(colour(line), soft_wrap=True)
            return
        except ImportError:
            pass
    out.write(f"{text}\n")
    out.flush()


Row = Sequence[str]

_APART = 2
"""Blanks between two columns."""
_NOTHING = ("", "-")
"""Cells without a value."""


def write_table(out: TextIO, headers: Row, rows: Sequence[Row], numbers: frozenset[int] = frozenset()) -> None:
    """Write a table with its headers; columns `numbers` are flush right.

    It is aligned by spaces, so that it can be cut and searched. On a terminal that is narrower, cells without a place
    in the row stand below it, each whole on a line, so that names and addresses can be copied.
    """
    widths = [max(len(row[column]) for row in (headers, *rows)) for column in range(len(headers))]
    shown, room = len(headers), shutil.get_terminal_size().columns
    if out.isatty():
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


COLUMNS = ("level", "code", "field", "verifier", "speculator", "message", "remedy")
"""Parts of a finding, as `pairing.verdict.to_json` names them."""

Told = Mapping[str, str]


def write_findings(out: TextIO, findings: Sequence[Told]) -> None:
    """Write all findings, in their order; `-` where a part has no value."""
    if out.isatty():
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            Console(file=out, no_color="NO_COLOR" in os.environ).print(findings_table(findings))
            return
    headers = [name.upper() for name in COLUMNS]
    write_table(out, headers, [[one.get(name) or "-" for name in COLUMNS] for one in findings])


def findings_table(findings: Sequence[Told]) -> Table:
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
