"""Reads rows of the catalogue: the package's own table and a user's rows, by the same rules.

Used by `catalogue`. It reports the first error with row, column, value and remedy.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from speculative_operator.domain.spec import Method

COLUMNS = (
    "verifier", "speculator", "method", "one_pass", "trained_for", "k", "acceptance_length", "acceptance_k",
    "acceptance_on", "acceptance_source", "source", "date",
)  # fmt: skip
REQUIRED = ("verifier", "speculator", "method", "source", "date")
LARGEST_K = 64
_LONGEST = 400
_PART = r"[A-Za-z0-9_][A-Za-z0-9._=+-]*"
_SPECULATOR = (
    rf"(?:{_PART}(?:/{_PART})?|hf://{_PART}(?:/{_PART})?"
    r"|oci://[a-z0-9.-]+(?::[0-9]{1,5})?(?:/[a-z0-9._-]+)+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
    rf"|s3://[a-z0-9][a-z0-9.-]+(?:/{_PART})*|pvc://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?:/{_PART})*)?"
)
"""A model of a hub by its name, or as `speculator.model` would name it, for clusters that have models elsewhere."""
_METHODS = [one.value for one in Method if not one.draft_free]
_WHOLE = "|".join(str(k) for k in range(1, LARGEST_K + 1))
_FORMS: Mapping[str, tuple[str, str]] = {
    "method": ("|".join(_METHODS), f"use one of {', '.join(_METHODS)}"),
    "verifier": (r"[A-Za-z0-9][\w.:@-]*(?:/[\w.@-]+)*", "name the model it is made for: write organisation/model"),
    "speculator": (_SPECULATOR, "write organisation/model, or hf://, oci://, s3:// or pvc:// with what follows"),
    "source": ("(?s:.+)", "say where it is documented"),
    "date": (
        r"20\d\d(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?",
        "write the source's date, such as 2026-08-21, 2026-08 or 2026",
    ),
    "one_pass": ("(?:true|false)?", "write true, or leave it empty"),
    "k": (f"(?:{_WHOLE})?", f"write a whole number from 1 to {LARGEST_K}, or leave it empty"),
    "acceptance_k": (f"(?:{_WHOLE})?", f"write a whole number from 1 to {LARGEST_K}, or leave it empty"),
}
"""Column -> (what its text must match, what to do where it does not)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One speculator that is publicly known for one verifier."""

    verifier: str
    """`organisation/model`."""
    speculator: str
    """The same, or a URI as `speculator.model` has it; empty where the drafting layers are part of the verifier."""
    method: Method
    source: str
    """Address or document that names the speculator."""
    date: str
    """Date of the source, as far as it is known: `2026-08-21`, `2026-08` or `2026`."""
    one_pass: bool = False
    """All tokens are drafted in one pass: `speculator.parallelDrafting`."""
    trained_for: str = ""
    """Text that the speculator is made for, where that is not all text, such as `Korean`."""
    k: int | None = None
    """Draft tokens that the source serves it with."""
    acceptance_length: float | None = None
    """Published tokens per verification, the verifier's own included."""
    acceptance_k: int | None = None
    acceptance_on: str = ""
    acceptance_source: str = ""
    added: bool = False
    """A user's own row; those go first."""

    @property
    def uri(self) -> str:
        """URI of the speculator for `speculator.model`; empty where the drafting layers are part of the verifier."""
        known = not self.speculator or "://" in self.speculator
        return self.speculator if known else f"hf://{self.speculator}"

    @property
    def title(self) -> str:
        """The speculator's name for people: its model, or the drafting layers of the verifier."""
        return self.speculator or "the drafting layers of the verifier"

    @property
    def key(self) -> tuple[str, str, Method]:
        return (self.verifier.lower(), self.speculator.lower(), self.method)


class CatalogueError(ValueError):
    """A row cannot be read. `str()` names it, with column, value and remedy."""

    def __init__(self, name: str, row: int, column: str, value: str, remedy: str) -> None:
        where = f"{name}, row {row}" + (f", column {column}" if column else "")
        shown = f": {value[:80]!r}" if value else ""
        super().__init__(f"{where}{shown}: {remedy}")
        self.row, self.column, self.value, self.remedy = row, column, value, remedy


def parse(text: str, name: str) -> tuple[Entry, ...]:
    """Entries of a CSV text whose first row names the columns. Rows are counted by lines. Raises CatalogueError."""
    found: list[Entry] = []
    known: dict[tuple[str, str, Method], int] = {}
    for row, cells in _rows(text, name):
        entry = _entry(name, row, cells)
        if entry.key in known:
            raise CatalogueError(
                name, row, "speculator", entry.speculator or entry.verifier, f"row {known[entry.key]} says it: keep one"
            )
        known[entry.key] = row
        found.append(entry)
    return tuple(found)


def _rows(text: str, name: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line, column -> text) of every row that is not empty."""
    reader = csv.reader(text.splitlines())
    header: list[str] | None = None
    try:
        for cells in reader:
            plain = [cell.strip() for cell in cells]
            if not any(plain) or plain[0].startswith("#"):
                continue
            if header is None:
                header = _header(name, reader.line_num, plain)
            elif len(plain) > len(header):
                remedy = f"{len(plain)} cells under {len(header)} columns: put cells with commas in quotes"
                raise CatalogueError(name, reader.line_num, "", "", remedy)
            else:
                yield reader.line_num, dict(zip(header, plain + [""] * (len(header) - len(plain)), strict=True))
    except csv.Error as problem:
        raise CatalogueError(name, reader.line_num, "", "", f"no CSV: {problem}") from None
    if header is None:
        raise CatalogueError(name, 1, "", "", f"begin with a row of columns: {','.join(REQUIRED)}")


def _header(name: str, row: int, cells: list[str]) -> list[str]:
    for cell in cells:
        if cell not in COLUMNS:
            raise CatalogueError(name, row, cell, "", f"no column of that name: use {', '.join(COLUMNS)}")
        if cells.count(cell) > 1:
            raise CatalogueError(name, row, cell, "", "named twice: keep one")
    for column in REQUIRED:
        if column not in cells:
            raise CatalogueError(name, row, column, "", "is missing: add it")
    return cells


def _entry(name: str, row: int, cells: Mapping[str, str]) -> Entry:
    cells = {**dict.fromkeys(COLUMNS, ""), **cells}
    for column, text in cells.items():
        form, remedy = _FORMS.get(column, ("(?s:.*)", ""))
        if len(text) > _LONGEST:
            raise CatalogueError(name, row, column, text, f"is longer than {_LONGEST} letters: shorten it")
        if not re.fullmatch(form, text.lower() if column in ("method", "one_pass") else text):
            raise CatalogueError(name, row, column, text, remedy)
    method = Method(cells["method"].lower())
    if not cells["speculator"] and not method.may_sit_in_verifier:
        raise CatalogueError(name, row, "speculator", "", f"name it: {method.value} has weights of its own")
    k, at = (int(cells[column]) if cells[column] else None for column in ("k", "acceptance_k"))
    length = _length(name, row, cells["acceptance_length"], at)
    if length is not None and not cells["acceptance_on"]:
        raise CatalogueError(name, row, "acceptance_on", "", "say what the acceptance length was measured on")
    return Entry(
        verifier=cells["verifier"],
        speculator=cells["speculator"],
        method=method,
        source=cells["source"],
        date=cells["date"],
        one_pass=cells["one_pass"].lower() == "true",
        trained_for=cells["trained_for"],
        k=k,
        acceptance_length=length,
        acceptance_k=at,
        acceptance_on=cells["acceptance_on"],
        acceptance_source=cells["acceptance_source"],
    )


def _length(name: str, row: int, text: str, k: int | None) -> float | None:
    if not text:
        return None
    most = (k or LARGEST_K) + 1
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1.0 <= value <= most:
        raise CatalogueError(name, row, "acceptance_length", text, f"write tokens per verification, from 1 to {most}")
    return value
