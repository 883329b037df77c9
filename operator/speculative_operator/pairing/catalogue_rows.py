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
MOST_ROWS = 10_000
_LONGEST = 400
_NAME = re.compile(r"[A-Za-z0-9][\w.:@-]*(?:/[\w.@-]+)*")
_PART = r"[A-Za-z0-9_][A-Za-z0-9._=+-]*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})?")
"""What can be fetched from a hub by its name."""
_ELSEWHERE = re.compile(
    rf"hf://{_PART}(?:/{_PART})?|oci://[a-z0-9.-]+(?::[0-9]{{1,5}})?(?:/[a-z0-9._-]+)+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{{64}})?"
    rf"|s3://[a-z0-9][a-z0-9.-]+(?:/{_PART})*|pvc://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?:/{_PART})*"
)
"""A speculator as `speculator.model` would name it: for clusters that have models elsewhere than on a hub."""
_DATE = re.compile(r"20\d\d(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")


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
        if len(found) > MOST_ROWS:
            raise CatalogueError(name, row, "", "", f"more than {MOST_ROWS:,} rows: leave some out")
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
    for column, remedy in (*_names(cells), *_words(cells)):
        raise CatalogueError(name, row, column, cells.get(column, ""), remedy)
    return _figures(name, row, cells, Method(cells["method"].lower()))


def _names(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(column, remedy) of each error in the columns of models and method."""
    method = next((one for one in Method if one.value == cells["method"].lower()), None)
    if method is None or method.draft_free:
        yield "method", f"use one of {', '.join(one for one in Method if not one.draft_free)}"
    if cells["verifier"] and not _NAME.fullmatch(cells["verifier"]):
        yield "verifier", "write organisation/model"
    speculator = cells["speculator"]
    if speculator and not (_REPOSITORY.fullmatch(speculator) or _ELSEWHERE.fullmatch(speculator)):
        yield "speculator", "write organisation/model, or hf://, oci://, s3:// or pvc:// with what follows"
    if not cells["verifier"]:
        yield "verifier", "name the model it is made for"
    if not cells["speculator"] and method is not None and not method.may_sit_in_verifier:
        yield "speculator", f"name it: {method.value} has weights of its own"


def _words(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(column, remedy) of each error in the other columns that hold text: length, source, date, one_pass."""
    for column in COLUMNS:
        if len(cells.get(column, "")) > _LONGEST:
            yield column, f"is longer than {_LONGEST} letters: shorten it"
    if not cells["source"]:
        yield "source", "say where it is documented"
    if not _DATE.fullmatch(cells["date"]):
        yield "date", "write the source's date, such as 2026-08-21, 2026-08 or 2026"
    if cells.get("one_pass", "").lower() not in ("", "true", "false"):
        yield "one_pass", "write true, or leave it empty"


def _figures(name: str, row: int, cells: Mapping[str, str], method: Method) -> Entry:
    k, at = (_whole(name, row, cells, column) for column in ("k", "acceptance_k"))
    length = _length(name, row, cells, at)
    if length is not None and not cells.get("acceptance_on"):
        raise CatalogueError(name, row, "acceptance_on", "", "say what the acceptance length was measured on")
    return Entry(
        verifier=cells["verifier"],
        speculator=cells["speculator"],
        method=method,
        source=cells["source"],
        date=cells["date"],
        one_pass=cells.get("one_pass", "").lower() == "true",
        trained_for=cells.get("trained_for", ""),
        k=k,
        acceptance_length=length,
        acceptance_k=at,
        acceptance_on=cells.get("acceptance_on", ""),
        acceptance_source=cells.get("acceptance_source", ""),
    )


def _whole(name: str, row: int, cells: Mapping[str, str], column: str) -> int | None:
    text = cells.get(column, "")
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    if not 1 <= value <= LARGEST_K:
        raise CatalogueError(name, row, column, text, f"write a whole number from 1 to {LARGEST_K}, or leave it empty")
    return value


def _length(name: str, row: int, cells: Mapping[str, str], k: int | None) -> float | None:
    text = cells.get("acceptance_length", "")
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
