"""Recorded requests -> arrival times and lengths. Called by `speculative simulate`, which opens the file.

Two formats:

- `jsonl`: an object a line with `timestamp` (milliseconds), `input_length` and `output_length`; other keys are ignored.
- `csv`: a header and a row per request. Columns are recognised by name, whatever their case and punctuation (`_TIMES`,
  `_PROMPTS`, `_OUTPUTS` list the names); other columns are ignored. Times are seconds, milliseconds where the column's
  name ends in ms, or dates. Commas, semicolons or tabs separate.
  `azure` is another name for it: the Azure LLM inference traces have such columns.

Empty lines are passed over, requests are sorted by time, and the first one arrives at 0.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Format = Literal["azure", "jsonl", "csv"]
Row = tuple[int, int, int]
"""Nanoseconds, prompt tokens, output tokens."""

_TIMES = (
    *("timestamp", "time", "arrival", "arrivaltime", "arrivaltimestamp", "arrivedat", "arrivedtime", "starttime"),
    *("requesttime", "invocationtime", "createdat", "ts"),
)
_PROMPTS = (
    *("prompt", "prompttokens", "promptlength", "promptlen", "input", "inputtokens", "inputlength", "inputlen"),
    *("contexttokens", "requesttokens", "numprompttokens", "numinputtokens", "numprefilltokens", "prefilltokens"),
)
_OUTPUTS = (
    *("output", "outputtokens", "outputlength", "outputlen", "generatedtokens", "generationtokens", "responsetokens"),
    *("completiontokens", "numoutputtokens", "numgeneratedtokens", "numdecodetokens", "decodetokens"),
)
_UNITS = {"": 10**9, "s": 10**9, "sec": 10**9, "seconds": 10**9, "ms": 10**6, "millis": 10**6, "milliseconds": 10**6}
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_LONGEST = 10_000_000
"""Tokens of one prompt or output: ten times the longest context that any model has."""
_FARTHEST = 10**20
"""Nanoseconds, three thousand years: beyond lies a wrong unit or column."""


class TraceError(ValueError):
    """A line that is no request. The message names line, column, value and remedy."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests as arrays of one length, by time. `arrival` in seconds from the first one; lengths in tokens."""

    arrival: NDArray[np.float64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.arrival)

    def until(self, seconds: float) -> Trace:
        """Requests that arrive before that moment."""
        kept = self.arrival < seconds
        return Trace(self.arrival[kept], self.prompt[kept], self.output[kept])

    def sped_up(self, factor: float) -> Trace:
        """The same requests `factor` times as fast."""
        return Trace(self.arrival / factor, self.prompt, self.output)


def read(lines: Iterable[str], form: Format) -> Trace:
    """The trace in `lines` of text, line ends included or not. Raises TraceError."""
    rows = sorted(_jsonl(lines) if form == "jsonl" else _csv(lines))
    if not rows:
        raise TraceError("the trace holds no request; is it the right file?")
    first = rows[0][0]
    return Trace(
        np.array([(row[0] - first) / 1e9 for row in rows]),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.int64),
    )


def _csv(lines: Iterable[str]) -> Iterator[Row]:
    source, opening = iter(lines), [""]
    while not opening[-1].strip() and (line := next(source, None)) is not None:
        opening.append(line)
    separator = max(",;\t", key=opening[-1].count)
    rows = _cells(chain(opening[1:], source), separator)
    _, header = next(rows, (1, []))
    names = [cell.strip().lstrip("\ufeff") for cell in header]
    (time, unit), (prompt, _), (output, _) = (
        _column(names, what, known) for what, known in (("time", _TIMES), ("prompt", _PROMPTS), ("output", _OUTPUTS))
    )
    for number, cells in rows:
        values = _picked(number, cells, (time, prompt, output), len(names))
        yield (
            _time(number, names[time], values[0], unit),
            _tokens(number, names[prompt], values[1]),
            _tokens(number, names[output], values[2]),
        )


def _jsonl(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, parse_float=Decimal, parse_constant=str)
        except (ValueError, RecursionError) as problem:
            raise TraceError(f"line {number} is no JSON object: {problem}; write one object a line") from problem
        if not isinstance(entry, dict):
            raise TraceError(f"line {number} holds {line.strip()[:40]!r}; write one JSON object a line")
        yield (
            _time(number, "timestamp", _key(number, entry, "timestamp"), 10**6),
            _tokens(number, "input_length", _key(number, entry, "input_length")),
            _tokens(number, "output_length", _key(number, entry, "output_length")),
        )


def _cells(lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not empty."""
    reader = csv.reader((line.rstrip("\r\n") for line in lines), delimiter=separator, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as problem:
        raise TraceError(f"line {reader.line_num}: {problem}; check its quotes") from problem


def _picked(number: int, cells: Sequence[str], places: Iterable[int], columns: int) -> list[str]:
    if len(cells) != columns:
        raise TraceError(f"line {number} has {len(cells)} columns, the header {columns}; is the line cut off?")
    return [cells[place] for place in places]


def _column(names: Sequence[str], what: str, known: Sequence[str]) -> tuple[int, int]:
    """(place, nanoseconds of its unit) of the one column that means `what`."""
    found = [(place, unit) for place, name in enumerate(names) if (unit := _meaning(name, known))]
    if len(found) != 1:
        seen = " and ".join(repr(names[place]) for place, _ in found) or f"none of {', '.join(map(repr, names))}"
        raise TraceError(f"line 1: {seen} could be the {what} column; name exactly one of them {known[0]!r}")
    return found[0]


def _meaning(name: str, known: Sequence[str]) -> int:
    """Nanoseconds of the unit that the name tells (a second if none), 0 when it is not among the known ones."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return next(
        (size for unit, size in _UNITS.items() if plain.endswith(unit) and plain.removesuffix(unit) in known), 0
    )


def _key(number: int, entry: dict[str, Any], key: str) -> Any:
    if key not in entry:
        keys = ", ".join(sorted(entry)) or "nothing"
        raise TraceError(f"line {number} has no {key!r}, only {keys}; every line needs it")
    return entry[key]


def _time(number: int, column: str, value: Any, unit: int) -> int:
    if isinstance(value, str) and _DATE.fullmatch(value.strip()):
        return _date(number, column, value)
    time = _number(value)
    if time is None or abs(time) * unit > _FARTHEST:
        raise TraceError(
            f"line {number}, column {column}: {value!r} is no time; write a number or YYYY-MM-DD HH:MM:SS.fff"
        )
    return int(time * unit)


def _date(number: int, column: str, value: str) -> int:
    found = _DATE.fullmatch(value.strip())
    try:
        if found is None:
            raise ValueError
        day, clock, fraction, zone = found.groups()
        moment = datetime.fromisoformat(f"{day}T{clock}{zone or 'Z'}").astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        remedy = "write YYYY-MM-DD HH:MM:SS.fffffff"
        raise TraceError(f"line {number}, column {column}: {value!r} is no date; {remedy}") from problem
    seconds = moment.toordinal() * 86_400 + moment.hour * 3600 + moment.minute * 60 + moment.second
    return seconds * 10**9 + int((fraction or "0").ljust(9, "0"))


def _tokens(number: int, column: str, value: Any) -> int:
    count = _number(value)
    if count is None or count != int(count) or not 1 <= count <= _LONGEST:
        raise TraceError(
            f"line {number}, column {column}: {value!r} is no number of tokens; write a whole number from 1 to "
            f"{_LONGEST}, and leave failed requests out"
        )
    return int(count)


def _number(value: Any) -> Decimal | None:
    """The finite number that a cell or JSON value holds, unless it is absurdly long; None for all else."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() and number.adjusted() < 24 else None
